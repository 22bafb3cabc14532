"""What is in a task: the numbers are those of its windows."""

import json

import numpy as np
import pytest

from spacetime_en import evaluate
from spacetime_en._util.terminal import Terminal
from spacetime_en.data import Task, Trajectories, Windows
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.report.tables.task import describe_recordings, describe_task, print_task


def test_it_counts_windows_and_measures_the_trivial_forecasts(tiny_task, capsys):
    description = describe_task(tiny_task)
    assert description["splits"] == {"train": 40, "val": 12, "test": 12}
    assert (description["frames"], description["nodes"], description["dims"]) == (3, 5, 3)
    evaluated = evaluate(LastFrame(), tiny_task).report["position_mse"]
    assert description["last_frame"]["position_mse"] == pytest.approx(evaluated)
    assert description["drift"]["energy"]["median"] < 1e-2
    print_task(description, Terminal())
    printed = capsys.readouterr().out
    assert "train 40, val 12, test 12" in printed
    assert "last frame, position MSE" in printed


@pytest.fixture
def crossing():
    """Six nodes in two slots, ten frames each; the first is hidden for three of them."""
    x = np.random.default_rng(0).standard_normal((1, 30, 2, 2)).cumsum(1)
    ids = np.repeat(np.arange(6).reshape(1, 3, 2), 10, axis=1)
    observed = np.ones((1, 30, 2), dtype=bool)
    observed[0, 4:7, 0] = False
    return Trajectories.from_arrays(x, ids=ids, observed=observed, meta={"time_unit": "s"})


def test_recordings_of_nodes_that_come_and_go(crossing):
    assert describe_recordings(crossing) == {
        "count": 1,
        "shortest": 30,
        "longest": 30,
        "nodes": 6,
        "most_at_once": 2,
        "observed": pytest.approx(57 / 60),
        "gaps": 1,
        "longest_gap": 3,
    }


def test_a_task_of_paths_is_described_in_words_at_any_width(crossing, capsys, monkeypatch):
    windows = {"length": 3, "stride": 1, "target_steps": "1..2"}
    parts = [Windows(crossing, **windows, steps=span) for span in ((0, 9), (10, 19), (20, 29))]
    description = describe_task(Task("crossing", *parts))
    assert description["target_steps"] == [1, 2]
    assert description["last_frame"]["ade"] < description["last_frame"]["fde"]
    assert json.loads(json.dumps(description))["nodes"] == 2
    for width in (80, 40):
        monkeypatch.setenv("COLUMNS", str(width))
        print_task(description, Terminal())
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= width
        words = " ".join(printed.split())
        assert (
            "6 nodes, at most 2 at once; observed in 95 % of their frames, 1 gap of up to 3 frames"
            in words
        )
        assert "2 targets 1 to 2 s after the last (1 to 2 frame intervals)" in words
        assert "per coordinate" in words
        assert "ADE" in words
