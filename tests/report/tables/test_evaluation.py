"""An evaluation, printed and written."""

import csv
import json

import pytest

from spacetime_en import evaluate
from spacetime_en._util.terminal import Terminal
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.report.tables.evaluation import print_evaluation, write_evaluation


@pytest.fixture
def evaluation(tiny_task):
    return evaluate(StraightLine(), tiny_task)


def test_the_files_hold_the_report_and_one_row_a_window(evaluation, tmp_path):
    report, table = write_evaluation(evaluation, tmp_path / "new", "test")
    assert json.loads(report.read_text()) == evaluation.report
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == evaluation.report["windows"] == 12
    mean = sum(float(row["model_position_mse"]) for row in rows) / 12
    assert mean == pytest.approx(evaluation.report["position_mse"]["mean"])


def test_the_table_has_the_model_and_the_trivial_forecasts(evaluation, capsys):
    print_evaluation(evaluation.report | {"warnings": ["the data differ."]}, Terminal())
    printed = capsys.readouterr().out
    for text in ("StraightLine", "last frame", "equivariance error", "warning: the data differ."):
        assert text in printed
