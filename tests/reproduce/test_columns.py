"""Columns: seeds summed up in one cell."""

import math

from spacetime_en.compare.table import Cell
from spacetime_en.reproduce.columns import COST, ERRORS, mean_and_deviation


def test_seeds_become_mean_and_standard_deviation():
    assert mean_and_deviation([3.0, 4.0, 5.0]) == Cell(4.0, "4 ± 1")
    assert mean_and_deviation([4.0, 4.0]) == Cell(4.0, "4")
    assert mean_and_deviation([4.0, math.inf]) == Cell(None, "∞")


def test_a_column_reads_the_model_or_a_trivial_forecast_and_skips_what_diverged():
    mse = {"position_mse": {"mean": 2.0}, "last_frame": {"position_mse": {"mean": None}}}
    results = [{"test": mse}, {"training": {"diverged": True}}]
    assert ERRORS[0].of(results).value == 2.0
    assert ERRORS[0].of(results, "last_frame").text == "∞"  # JSON has no infinity
    assert ERRORS[0].of(results[1:]) == Cell()


def test_trivial_forecasts_cost_nothing():
    results = [{"test": {}, "rate": 1e-3}]
    rate = COST[0]
    assert rate.of(results) == Cell(1e-3, "0.001")
    assert rate.of(results, "last_frame") == Cell()
