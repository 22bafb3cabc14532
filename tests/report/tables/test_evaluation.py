"""An evaluation, printed and written."""

import csv
import json

import pytest

from spacetime_en import evaluate
from spacetime_en._util.terminal import Terminal
from spacetime_en.evaluation import RIVALS
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.report.tables.evaluation import show, write


@pytest.fixture
def evaluation(tiny_task):
    return evaluate(StraightLine(), tiny_task)


def test_the_files_hold_the_report_and_one_row_a_window(evaluation, tmp_path):
    report, table = write(evaluation, tmp_path / "new", "test")
    assert json.loads(report.read_text()) == evaluation.report
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == evaluation.report["windows"] == 12
    mean = sum(float(row["model_position_mse"]) for row in rows) / 12
    assert mean == pytest.approx(evaluation.report["position_mse"]["mean"])


def test_the_table_has_the_model_and_the_trivial_forecasts(evaluation, capsys):
    show(evaluation.report | {"warnings": ["the data differ."]}, Terminal())
    printed = capsys.readouterr().out
    for text in ("StraightLine", "last frame", "equivariance error", "warning: the data differ."):
        assert text in printed


def of_path(ade, fde, k=None):
    """What a report says of paths at eight times."""
    errors = [{"time": 0.5 * t, "step": t, "mean_distance": 0.1 * t} for t in range(1, 9)]
    summary = {"mean": ade, "standard_error": 0.01234, "median": 0.4, "p90": 1.5}
    return {
        "ade": ade,
        "fde": fde,
        "error_against_time": errors,
        "best_of": None if k is None else {"k": k, "ade": ade / 2, "fde": fde / 2},
        "paths": {"nodes": 1234, "ade": summary} | ({} if fde is None else {"fde": summary}),
    }


def test_paths_are_shown_in_80_columns(evaluation, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    report = evaluation.report | of_path(0.512345, 1.2, k=20)
    for name in RIVALS:
        report[name] = report[name] | of_path(0.7, None if name == "ridge" else 2.0)
    show(report, Terminal())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "1,234 paths of 8 target times" in lines
    head = next(i for i, line in enumerate(lines) if "ADE" in line)
    words = lines[head + 2].split()
    assert words == ["StraightLine", "0.5123", "0.01", "0.4", "1.5", "1.2", "0.01"]
    assert "StraightLine, best of 20 samples: ADE 0.2562, FDE 0.6" in lines
    ridge = [line.split()[1:] for line in lines if line.startswith("ridge")]
    assert ridge[1] == ["0.7", "0.01", "0.4", "1.5", "–"]  # nobody is left at the end
    assert ridge[2] == ["0.1", "0.2", "0.3", "0.5", "0.6", "0.8"]
    times = next(line for line in lines if line.startswith("mean distance after"))
    assert times.split()[3:] == ["0.5", "1", "1.5", "2.5", "3", "4"]
