"""Columns: short numbers that keep their size, and seeds summed up in one cell."""

import math

import pytest

from spacetime_en.reproduce.columns import COST, ERRORS, Cell, mean_and_deviation, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.21456, "3.21"),
        (0.0123, "0.0123"),
        (16.2, "16.2"),
        (1.2e-7, "1.2e-07"),
        (0.0, "0"),
        (1234.5, "1,234"),
        (123456.0, "123,456"),
        (4.2e30, "4.2e+30"),
        (None, "–"),
    ],
)
def test_numbers_are_short_and_never_lose_their_size(value, text):
    assert number(value) == text


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
