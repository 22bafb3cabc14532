"""What is in a task: the numbers are those of its windows."""

import pytest

from spacetime_en import evaluate
from spacetime_en._util.terminal import Terminal
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.report.tables.task import describe_task, print_task


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
