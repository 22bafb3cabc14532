"""Comparisons: the same winner whatever the test errors, resumable runs, clear error messages."""

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from spacetime_en import InputError, evaluate, simulate
from spacetime_en.compare import comparison
from spacetime_en.compare.comparison import compare, train_best
from spacetime_en.compare.leaderboard import Choice
from spacetime_en.compare.results import read_result, write_result
from spacetime_en.runs.run import FACTS_FILE, Run
from tests.compare.inline import TASK, carry_out_here, compare_here
from tests.conftest import TINY

SHORT = {key: value for key, value in TASK.items() if key != "length"}


def test_the_winner_is_an_ordinary_run(compared, tiny_task):
    board = compared.leaderboard
    run = Run.open(compared.best)
    assert run.config.preset == board.chosen
    evaluation = evaluate(run.model(), tiny_task)
    judged = read_result(compared.folder, f"test--{board.chosen}")
    means = [seed["position_mse"]["mean"] for seed in judged["seeds"]]
    found = evaluation.report["position_mse"]["mean"]
    assert any(found == pytest.approx(mean, rel=1e-4) for mean in means)
    assert (compared.best / "model").is_dir()


def test_everything_is_written(compared):
    text = json.loads((compared.folder / "leaderboard.json").read_text())
    assert text["best"] == compared.leaderboard.chosen
    assert {row["preset"] for row in text["rows"]} == {
        *("last-frame", "straight-line", "ridge-shared", "linear", "egnn")
    }
    assert 0 <= text["cost"]["overhead"] <= 1
    assert compared.report.is_file()
    assert "| linear |" in (compared.folder / "leaderboard.md").read_text()


def test_no_comparison_waits_for_matplotlib():
    program = "import sys, spacetime_en.compare.comparison; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_same_question_again_makes_nothing_anew(compared, cache):
    folder = compared.folder
    times = {p: p.stat().st_mtime_ns for p in (folder / "experiments").iterdir()}
    again = compare_here(folder, cache)
    assert again.leaderboard == compared.leaderboard
    assert times == {p: p.stat().st_mtime_ns for p in (folder / "experiments").iterdir()}


def test_a_seed_that_is_lost_is_made_again_and_gives_the_same(compared, cache, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    (folder / "experiments" / "egnn--seed1.json").unlink()
    shutil.rmtree(folder / "runs" / "egnn--seed1")
    again = compare_here(folder, cache)
    errors = [[row.error for row in made.leaderboard.rows] for made in (compared, again)]
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"budget": "31 steps"}, "another comparison .budget: '30 steps', now '31"),
        ({"seeds": 1}, "another comparison .seeds: 2, now 1"),
        ({"presets": ["mlp"]}, "another comparison .presets: "),
        ({"task": TASK | {"length": 4}}, "another comparison .task.length: 3, now 4"),
        ({"task": TASK | {"noise": 0.1}}, "another comparison .task.noise: not given, now 0.1"),
        ({"task": SHORT}, "another comparison .task.length: 3, now not given"),
    ],
)
def test_another_question_in_the_same_folder_is_refused(compared, cache, change, sentence):
    with pytest.raises(InputError, match=sentence):
        compare_here(compared.folder, cache, **change)


def test_the_model_is_chosen_without_the_test(cache, tmp_path):
    """Noise in place of the test's targets changes the test's errors, and not the choice."""
    data = simulate("charged", 20, nodes=3, steps=60, save=range(0, 61, 10), seed=5)
    made = []
    for name, noise in (("true", 0.0), ("noise", 30.0)):
        x = np.array(data.x)
        x[18:, -1] += noise * np.random.default_rng(0).normal(size=x[18:, -1].shape)
        dataclasses.replace(data, x=x).save(tmp_path / name)
        task = {"data": str(tmp_path / name), "length": 6, "target_steps": 1}
        made.append(compare_here(tmp_path / f"{name}-compared", cache, task))
    true, noisy = (one.leaderboard for one in made)
    assert noisy.best.error > 10 * true.best.error
    assert noisy.chosen == true.chosen
    validation = [{row.preset: row.validation for row in board.rows} for board in (true, noisy)]
    assert validation[0] == validation[1]
    best = [Run.open(one.best).model().state_dict() for one in made]
    assert all((best[0][key] == best[1][key]).all() for key in best[0])


def test_one_recording_is_compared_over_blocks(cache, tmp_path):
    steps = range(0, 4000, 10)
    simulate("springs", 1, nodes=3, steps=4000, save=steps, seed=1).save(tmp_path / "one")
    task = {"data": str(tmp_path / "one"), "length": 3, "target_steps": 1}
    presets = ["straight-line", "last-frame"]
    board = compare_here(tmp_path / "x", cache, task, presets=presets).leaderboard
    assert board.groups.endswith("blocks of neighbouring windows")
    assert board.rows[-1].interval is not None


def test_a_single_test_window_has_no_standard_error(cache, tmp_path):
    task = TASK | {"counts": (40, 12, 1)}
    made = compare_here(tmp_path / "x", cache, task, presets=["straight-line"])
    (row,) = made.leaderboard.rows
    assert row.standard_error is None


def test_a_model_that_breaks_is_listed_and_the_others_go_on(cache, tmp_path, monkeypatch):
    real = comparison.Fit.carry_out

    def broken(self, folder, tell):
        if self.candidate.preset == "linear":
            raise RuntimeError("out of luck")
        return real(self, folder, tell)

    monkeypatch.setattr(comparison.Fit, "carry_out", broken)
    presets = ["linear", "straight-line"]
    board = compare_here(tmp_path / "x", cache, presets=presets, seeds=1).leaderboard
    assert [row.preset for row in board.rows] == ["straight-line"]
    assert board.reasons == {"linear": "out of luck"}
    assert Run.open(tmp_path / "x" / "best").config.preset == "straight-line"


def test_what_cannot_be_asked_is_refused_before_anything_is_written(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    for how, sentence in (
        ({"seeds": 0}, "seeds: expected"),
        ({"budget": "soon"}, "budget: expected a time"),
        ({"presets": ["set-22"]}, "did you mean 'set-2'"),
        ({"storage": "sqlite:////nowhere/at/all.db"}, "storage: .* cannot be opened"),
    ):
        with pytest.raises(InputError, match=sentence):
            compare(TASK, tmp_path / "x", **how)
        assert not (tmp_path / "x").exists()


def test_too_few_windows_to_split_are_refused(tmp_path):
    simulate("springs", 1, nodes=3, save=[0, 10, 20]).save(tmp_path / "few")
    with pytest.raises(InputError, match=r"can be split neither by run .* nor by time"):
        compare({"data": str(tmp_path / "few")}, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_file_in_the_place_of_a_folder_is_one_sentence(cache, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"cannot be a folder, because .*letter\.txt is a file"):
        compare_here(tmp_path / "letter.txt" / "x", cache, presets=["straight-line"])


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"holds letter\.txt, and is no comparison"):
        compare(TASK, tmp_path)


def test_the_winner_alone(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.setattr(comparison, "carry_out_all", carry_out_here)
    task = {"name": "charged", **TINY}
    run = train_best(task, tmp_path / "run", ["straight-line", "ridge-shared"], budget="30 steps")
    assert run.folder == tmp_path / "run"
    assert run.model().trained_on is not None
    assert (tmp_path / "run" / "compare" / "report.html").is_file()
    assert not (tmp_path / "run" / ".origin").exists()
    with pytest.raises(InputError, match="is a run already"):
        train_best(task, tmp_path / "run")


def test_a_winner_that_was_killed_while_it_was_copied_is_copied_again(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    monkeypatch.setattr(comparison, "carry_out_all", carry_out_here)
    how = {"presets": ["straight-line"], "budget": "30 steps", "symmetries": False}
    real = shutil.copy

    def killed(path, target):
        if path.name != FACTS_FILE:
            return real(path, target)
        target.write_text('{"format"')
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy", killed)
        with pytest.raises(KeyboardInterrupt):
            train_best(TASK, tmp_path / "run", **how)
    assert train_best(TASK, tmp_path / "run", **how).model().trained_on is not None


@pytest.mark.parametrize("name", ["runs", "experiments", "searches", "best"])
def test_links_in_the_folder_are_not_followed(cache, tmp_path, name):
    folder, elsewhere = tmp_path / "x", tmp_path / "elsewhere"
    compare_here(folder, cache, presets=["straight-line"])
    shutil.rmtree(folder / name, ignore_errors=True)
    elsewhere.mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{name}: is a link"):
        compare_here(folder, cache, presets=["straight-line"])
    assert list(elsewhere.iterdir()) == []


def test_what_a_link_in_a_run_leads_to_is_not_copied(cache, tmp_path):
    folder = tmp_path / "x"
    compare_here(folder, cache, presets=["straight-line"])
    shutil.rmtree(folder / "best")
    (tmp_path / "secret").write_text("of the user")
    (folder / "runs" / "straight-line--seed0" / "notes").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="notes: is a link"):
        compare_here(folder, cache, presets=["straight-line"])
    assert not (folder / "best").exists()


def test_a_best_model_that_cannot_be_tested_is_kept_and_no_other_chosen(
    cache, tmp_path, monkeypatch
):
    real = comparison.Judgement.carry_out

    def broken(self, folder, tell):
        if self.candidate.preset == "straight-line":
            raise InputError("some of its forecasts are NaN.")
        return real(self, folder, tell)

    monkeypatch.setattr(comparison.Judgement, "carry_out", broken)
    sentence = (
        "straight-line is the best by validation, and could not be tested: some of its forecasts "
        "are NaN; its run is .*best"
    )
    folder = tmp_path / "x"
    with pytest.raises(InputError, match=sentence):
        compare_here(folder, cache, presets=["straight-line", "last-frame"])
    assert Run.open(folder / "best").config.preset == "straight-line"
    board = json.loads((folder / "leaderboard.json").read_text())
    assert (board["best"], board["no_worse"]) == ("straight-line", [])
    assert [row["preset"] for row in board["rows"]] == ["last-frame"]
    assert board["left_out"] == {"straight-line": "some of its forecasts are NaN."}
    for name in ("leaderboard.md", "report.html"):
        assert "Left out: straight-line: some of its forecasts are NaN." in (
            folder / name
        ).read_text("utf-8")


def test_what_a_row_does_not_show_of_its_trainings_is_said(compared, cache, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    assert compared.leaderboard.remarks == ()
    for seed, changes in ((0, {"skipped": 9}), (1, {"only_base": "ridge"})):
        fit = read_result(folder, f"egnn--seed{seed}")
        write_result(folder, fit["name"], fit | {"training": fit["training"] | changes})
    said = compare_here(folder, cache).leaderboard.remarks
    steps = 2 * read_result(folder, "egnn--seed0")["training"]["steps"]
    assert said[0].startswith(f"egnn: {9 / steps:.0%} of its steps diverged and were skipped")
    assert said[1].startswith("egnn: with 1 of 2 seeds its network added nothing to its base (ri")
    for name in ("leaderboard.json", "leaderboard.md", "report.html"):
        text = (folder / name).read_text("utf-8")
        assert all(remark in text for remark in said)


def test_what_does_not_fit_is_said_before_anything_is_trained(cache, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "e3nn", None)
    told = []
    presets = ["straight-line", "tfn"]
    made = compare_here(
        tmp_path / "x", cache, presets=presets, symmetries=False, notify=told.append
    )
    assert told == made.leaderboard.missing()
    assert told[0].startswith("Left out: tfn: this needs the package e3nn")


@pytest.mark.parametrize("shared", [True, False])
def test_machines_that_share_a_storage_and_others_do_not_work_in_one_folder(
    cache, tmp_path, shared
):
    url = f"sqlite:///{tmp_path}/jobs.db"
    first, other = (url, None) if shared else (None, url)
    how = {"presets": ["straight-line"], "symmetries": False}
    made = compare_here(tmp_path / "x", cache, storage=first, **how)
    assert compare_here(tmp_path / "x", cache, storage=other, **how).leaderboard == made.leaderboard
    (tmp_path / "x" / "experiments" / "straight-line--seed0.json").unlink()
    sentence = f"was begun with{'' if shared else 'out'} one, and is not finished"
    with pytest.raises(InputError, match=sentence):
        compare_here(tmp_path / "x", cache, storage=other, **how)
    compare_here(tmp_path / "x", cache, storage=first, **how)


def test_two_machines_that_finish_at_the_same_time_both_leave_the_best(
    compared, cache, tmp_path, monkeypatch
):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    shutil.rmtree(folder / "best")
    real = shutil.copytree

    def meanwhile(*how, **more):
        """Another machine does the same while this one copies."""
        monkeypatch.setattr(shutil, "copytree", real)
        compare_here(folder, cache)
        assert Run.open(folder / "best").config.preset == compared.leaderboard.chosen
        return real(*how, **more)

    monkeypatch.setattr(shutil, "copytree", meanwhile)
    again = compare_here(folder, cache)
    assert again.leaderboard == compared.leaderboard
    assert Run.open(again.best).model().trained_on is not None
    assert not list(folder.glob(".spacetime-en*"))


def test_a_best_run_that_was_chosen_before_makes_room(compared, cache, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    chosen = compared.leaderboard.chosen
    other = next(r.preset for r in compared.leaderboard.rows if r.preset != chosen)
    comparison._keep_best(folder, Choice(other, f"runs/{other}--seed0", {}))
    assert Run.open(folder / "best").config.preset == other
    (folder / "best" / "notes.txt").write_text("of the user")
    assert Run.open(compare_here(folder, cache).best).config.preset == chosen
    (folder / "best" / "notes.txt").write_text("of the user")
    compare_here(folder, cache)
    assert (folder / "best" / "notes.txt").exists()  # (of the same run: left as it is)


def test_a_model_without_a_validation_error_is_left_out(compared, cache, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    fit = read_result(folder, "last-frame--seed0")
    write_result(folder, fit["name"], fit | {"training": {"val_mse": None, "seconds": 0.0}})
    board = compare_here(folder, cache).leaderboard
    assert "last-frame" not in [row.preset for row in board.rows]
    assert board.reasons == {"last-frame": "its validation error is not known."}


def test_a_model_whose_forecasts_far_away_are_no_numbers_has_a_row(compared, cache, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(compared.folder, folder)
    test = read_result(folder, "test--linear")
    test["seeds"][0]["equivariance_error"]["translation"] = float("nan")
    write_result(folder, test["name"], test)
    rows = {row.preset: row for row in compare_here(folder, cache).leaderboard.rows}
    assert rows["linear"].symmetry is None
    assert rows["egnn"].symmetry < 1e-4


def test_a_comparison_that_was_killed_before_its_question_was_written_begins(
    cache, tmp_path, monkeypatch
):
    def killed(*_):
        raise KeyboardInterrupt  # (nothing that is done after an error may be needed)

    how = {"presets": ["straight-line"], "symmetries": False}
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "written_once", killed)
        with pytest.raises(KeyboardInterrupt):
            compare_here(tmp_path / "x", cache, **how)
    assert compare_here(tmp_path / "x", cache, **how).best.is_dir()


def test_other_data_in_the_same_folder_are_noticed_by_the_same_process(cache, tmp_path):
    task = {"data": str(tmp_path / "data"), "length": 3, "target_steps": 1}

    def put(count):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        data = simulate("springs", count, nodes=3, steps=60, save=range(0, 61, 10), seed=count)
        data.save(tmp_path / "data")

    put(20)
    compare_here(tmp_path / "x", cache, task, presets=["straight-line"])
    comparison.Question(task, comparison.ModelBudget("30 steps", 2)).load_task()
    put(21)
    with pytest.raises(InputError, match=r"another comparison .data: "):
        compare_here(tmp_path / "x", cache, task, presets=["straight-line"])


def test_a_model_that_lost_a_seed_comes_after_those_with_all(cache, tmp_path, monkeypatch):
    real = comparison.Fit.carry_out

    def broken(self, folder, tell):
        if self.candidate.preset == "linear" and self.seed == 1:
            raise InputError("training diverged.")
        made = real(self, folder, tell)
        if self.candidate.preset == "linear":  # by far the best, with the seed that is left
            made = made | {"training": made["training"] | {"val_mse": 1e-9}}
            write_result(folder, self.name, made)
        return made

    monkeypatch.setattr(comparison.Fit, "carry_out", broken)
    board = compare_here(tmp_path / "x", cache, presets=["linear", "straight-line"]).leaderboard
    assert {row.preset for row in board.rows} == {"linear", "straight-line"}
    assert board.chosen == "straight-line"
    assert board.missing() == ["linear: 1 of 2 seeds: training diverged."]
