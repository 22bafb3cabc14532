"""``spacetime compare`` from end to end, as a user types it."""

import json
import os
import shutil
import signal
import sys

import pytest

from spacetime_en.cli import main
from spacetime_en.compare.results import read_result
from tests.integration.commands import TASK, finish, start
from tests.integration.conftest import COMPARE, MODELS


@pytest.fixture(autouse=True)
def cached(monkeypatch, cache):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["spacetime", *map(str, arguments)])
    main()


def test_it_prints_validation_errors_and_then_the_leaderboard(compared_by_command):
    said = compared_by_command.said
    assert "egnn--seed1: validation MSE" in said
    board, _, progress = said.partition("Next: spacetime evaluate")
    symmetries, *lines = board.splitlines()
    assert symmetries.startswith("Symmetries of the data are not known")  # (of 52 windows)
    assert max(map(len, lines[: 3 + len(MODELS)])) <= 80
    assert [line.split()[0] for line in lines[3 : 3 + len(MODELS)]] == [
        row["preset"]
        for row in json.loads((compared_by_command.folder / "leaderboard.json").read_text())["rows"]
    ]
    assert "Best, by validation error: " in board
    assert progress.index("test--") > max(progress.index(f"{m}--seed0: validation") for m in MODELS)


def test_every_command_takes_the_winner(compared_by_command, monkeypatch, tmp_path, capsys):
    best = tmp_path / "best"  # (commands write into the run)
    shutil.copytree(compared_by_command.folder / "best", best)
    run(monkeypatch, "evaluate", best)
    run(monkeypatch, "export", best, "--out", tmp_path / "model.onnx")
    run(monkeypatch, "animate", best, "--out", tmp_path / "scene.html")
    assert "position" in capsys.readouterr().out
    assert (tmp_path / "model.onnx").is_file()
    assert (tmp_path / "scene.html").is_file()


def test_the_report_can_be_opened_and_nothing_is_made_again(
    compared_by_command, monkeypatch, capsys
):
    folder, opened = compared_by_command.folder, []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run(monkeypatch, *COMPARE, "--out", folder, "--open")
    assert opened == [(folder / "report.html").as_uri()]
    assert "validation MSE" not in capsys.readouterr().err


def test_killed_it_goes_on_where_it_was(tmp_path, cache, compared_by_command):
    folder = tmp_path / "x"
    process = start(*COMPARE, "--out", str(folder), "--workers", "1", cache=cache)
    while not (line := process.stderr.readline()).startswith("3 of"):
        assert line
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    done = len(list((folder / "experiments").glob("*--seed*.json")))
    assert done >= 3
    again = start(*COMPARE, "--out", str(folder), "--workers", "1", cache=cache)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert not any(err.startswith(f"{k} of") or f"\n{k} of" in err for k in range(1, done))
    # One seed fixes everything: the same errors as without an interruption.
    for name in ("test--egnn", "test--ridge-shared"):
        one, other = (read_result(f, name) for f in (folder, compared_by_command.folder))
        assert [s["position"] for s in one["seeds"]] == [s["position"] for s in other["seeds"]]


@pytest.mark.slow
def test_two_machines_divide_the_work(tmp_path, cache, compared_by_command):
    folder = tmp_path / "x"
    storage = ["--storage", f"sqlite:///{tmp_path}/jobs.db", "--workers", "1"]
    both = [start(*COMPARE, "--out", str(folder), *storage, cache=cache) for _ in range(2)]
    said = [process.communicate(timeout=600) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    lines = [line for _, err in said for line in err.splitlines() if "elsewhere" not in line]
    made = [line.split()[3] for line in lines if " of " in line]
    assert len(made) == len(set(made))  # nothing was done twice
    boards = [out.partition("Report:")[0] for out, _ in said]
    assert boards[0] == boards[1]


def test_the_winner_alone(tmp_path, cache):
    options = [*TASK, "--budget", "30 steps", "--seeds", "1", "--out", str(tmp_path / "run")]
    words = ["train", "auto", "straight-line", "ridge-shared", *options]
    assert "Next: spacetime evaluate" in finish(start(*words, cache=cache))
    assert (tmp_path / "run" / "run.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["set-22", *TASK], "did you mean 'set-2'"),
        (["mlp", "mlp", *TASK], "preset: 'mlp' is named twice"),
        (["mlp"], "task: what to compare on? Give --task NAME or --data FOLDER"),
        ([*TASK, "--budget", "soon"], "budget: expected a time such as 90s"),
        ([*TASK, "--budget", "3 steps"], "budget: '3 steps' is too small"),
        ([*TASK, "--seeds", "0"], "seeds: expected"),
        ([*TASK, "--storage", "sqlite:////nowhere/x.db"], "cannot be opened"),
        ([*TASK, "--workers", "0"], "workers: expected 1 to"),
    ],
)
def test_bad_choices_end_in_one_sentence(monkeypatch, capsys, tmp_path, arguments, sentence):
    with pytest.raises(SystemExit) as stop:
        run(monkeypatch, "compare", *arguments, "--out", tmp_path / "x")
    assert sentence in str(stop.value) + capsys.readouterr().err
    assert not (tmp_path / "x").exists()
