"""Curves: the points are the measured errors, sorted, and what is missing leaves a gap."""

import pytest

from spacetime_en.reproduce.curves import make_panels
from spacetime_en.reproduce.plan import Data, Experiment
from spacetime_en.reproduce.tables import Results
from tests.reproduce.test_tables import SCALE, write


def test_curves_go_through_the_measured_errors(tmp_path):
    for nodes, mean in {20: 5.0, 5: 4.0}.items():
        write(tmp_path, Experiment(Data(nodes), "egnn"), mean)
    panels = {panel.name: panel for panel in make_panels(Results(tmp_path, SCALE))}
    curves = {curve.label: curve for curve in panels["mse_vs_n"].curves}
    assert (curves["EGNN"].x, curves["EGNN"].y) == ([5.0, 20.0], [4.0, 5.0])
    assert "SET" not in curves
    assert curves["last frame"].trivial


def test_parameters_need_no_results(tmp_path):
    (panel,) = make_panels(Results(tmp_path, SCALE))
    assert panel.name == "parameters_vs_n"
    assert {curve.label: curve.y for curve in panel.curves}["SET"] == [796_058.0] * 3


def test_learning_curves_are_in_minutes_of_training(tmp_path):
    training = {"seconds": 300.0, "steps": 100, "curve": [[50, 2.0], [75, None], [100, 1.0]]}
    write(tmp_path, Experiment(Data(), "mlp"), 4.0, training=training)
    panels = {panel.name: panel for panel in make_panels(Results(tmp_path, SCALE))}
    (curve,) = panels["learning_curves"].curves
    assert curve.x == pytest.approx([2.5, 5.0])
    assert curve.y == [2.0, 1.0]
