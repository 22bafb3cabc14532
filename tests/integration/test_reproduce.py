"""``spacetime reproduce`` from end to end, at a scale that is meaningless but tests everything."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from filelock import FileLock

from spacetime_en.cli import main
from tests.integration.conftest import reproduce


@pytest.fixture(autouse=True)
def cached(monkeypatch, cache):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))


def test_it_writes_results_tables_figures_and_the_report(made):
    folder, planned = made.folder, made.planned
    assert f"written: {folder / 'report.html'}" in made.said.stdout
    assert all((folder / "experiments" / f"{e.name}.json").exists() for e in planned)
    assert f"{len(planned)} of {len(planned)}" in made.said.stderr
    written = json.loads((folder / "tables.json").read_text())
    assert [t["name"] for t in written["tables"]] == [*made.tables, "published"]
    for name in (*made.tables, "published"):
        assert (folder / "tables" / f"{name}.md").read_text().startswith("|")
    for name in (
        *("mse_vs_n", "parameters_vs_n", "error_vs_horizon"),
        *("learning_curves", "forecasts", "attention"),
    ):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()
    assert "Commands" in written["facts"]


def test_last_frame_and_straight_line_are_in_every_table(made):
    for name in made.tables:
        text = (made.folder / "tables" / f"{name}.md").read_text()
        assert "| last frame |" in text
        assert "| straight line |" in text


def test_what_the_audit_makes_says_so(made):
    results = list((made.folder / "experiments").glob("*zero*.json"))
    assert {path.stem for path in results} == {e.name for e in made.audited}
    assert all(json.loads(path.read_text())["audit"] == "zero targets" for path in results)
    assert "AUDIT" in (made.folder / "tables" / "published.md").read_text()
    # The true task's trials are used, not repeated.
    assert "trial" not in made.audit.stderr


def test_scenes_are_the_windows_that_were_tested(made):
    text = (made.folder / "report.html").read_text()
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    scenes = json.loads(data)["scenes"]
    result = json.loads((made.folder / "experiments" / "n5-h10000--set--seed0.json").read_text())
    for scene, truth in zip(scenes, result["shown"]["true"], strict=True):
        flat = [c for x in scene["x"][-1] for c in x]
        assert flat == pytest.approx([c for x in truth for c in x], abs=1e-3)
        assert {"SET", "LSTM", "EGNN", "MLP", "Linear"} == set(scene["forecasts"])
        assert list(scene["forecasts"]["SET"]) == ["90"]  # from the last frame
        assert scene["ahead"] == [100, 1000, 3000, 10000]


@pytest.mark.slow  # nor are the trials that the audit needs, above
def test_what_is_there_is_not_made_again(part):
    folder = part.folder
    times = {p: p.stat().st_mtime_ns for p in (folder / "experiments").iterdir()}
    said = reproduce(folder, "baselines")
    assert "test MSE" not in said.stderr
    assert times == {p: p.stat().st_mtime_ns for p in (folder / "experiments").iterdir()}


@pytest.mark.slow
def test_one_missing_result_is_made_alone(part, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(part.folder, folder)
    (folder / "experiments" / "n5-h10000--egnn--seed1.json").unlink()
    shutil.rmtree(folder / "runs" / "n5-h10000--egnn--seed1")
    said = reproduce(folder, "baselines", "--workers", "1")
    assert re.findall(r"n5-\S+: test MSE", said.stderr) == ["n5-h10000--egnn--seed1: test MSE"]
    (one, other) = (
        json.loads((f / "experiments" / "n5-h10000--egnn--seed1.json").read_text())
        for f in (part.folder, folder)
    )
    assert one["test"] == other["test"]  # one seed fixes everything


@pytest.mark.slow
def test_stopped_it_says_how_to_go_on_and_does(tmp_path):
    """SIGTERM, as a batch system sends it, in the middle."""
    command = [sys.executable, "-m", "spacetime_en", "reproduce", "n20", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()  # the first result
    assert line.startswith("1 of ")
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130
    assert rest.endswith("stopped; the same command goes on from here\n")
    done = len(list((tmp_path / "experiments").iterdir()))
    again = reproduce(tmp_path, "n20")
    assert f"{done + 1} of " in again.stderr
    assert "\n1 of " not in "\n" + again.stderr


@pytest.mark.slow
def test_an_experiment_that_fails_is_named_and_the_others_are_kept(part, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(part.folder, folder)
    name = "n5-h10000--mlp--seed0"
    (folder / "experiments" / f"{name}.json").unlink()
    shutil.rmtree(folder / "runs" / name)
    (folder / "runs" / name).write_text("in the way")
    said = reproduce(folder, "baselines", check=False)
    assert said.returncode == 1
    assert f"1 experiment(s) failed: {name}: " in said.stderr
    assert "is no folder" in said.stderr
    assert (folder / "report.html").exists()


def test_a_second_command_in_the_same_folder_is_refused(tmp_path):
    with FileLock(tmp_path / ".lock"):
        said = reproduce(tmp_path, "n20", check=False)
    assert said.returncode == 1
    assert "another process is at work here" in said.stderr


def test_results_in_place_of_a_folder_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    said = reproduce(tmp_path / "file", "n20", check=False)
    assert "is no folder; choose another name" in said.stderr


def child(pid, command=""):
    """The number of the first child of a process with this in its command, once there is one."""
    listing = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)]
    for _ in range(600):
        said = subprocess.run(listing, capture_output=True, text=True).stdout
        found = re.search(rf"(?m)^ *(\d+) .*{command}", said)
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{pid} has no child with {command!r}.")


def test_a_process_that_dies_is_named(tmp_path):
    command = [sys.executable, "-m", "spacetime_en", "reproduce", "n20", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--workers", "1"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stderr.readline()
    worker = child(child(process.pid, "forkserver"))
    subprocess.run(["kill", "-9", worker], check=True)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "its process died (exit code -9); was memory short?" in said
    assert "the same command goes on" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["baseline"], "baselines"),
        (["--scale", "huge"], "quick"),
        (["--targets", "none"], "zero"),
        (["n20", "--targets", "zero"], "baselines, noisy"),
        (["--workers", "0"], "workers: expected 1 to"),
        (["--workers", "1000000"], "the number of cores here, found 1000000"),
    ],
)
def test_bad_choices_name_the_good_ones(monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["spacetime", "reproduce", "--out", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert sentence in str(stop.value) + capsys.readouterr().err
    assert not any(tmp_path.iterdir())
