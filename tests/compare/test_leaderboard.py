"""The leaderboard: chosen by validation, fair conclusions, within 80 columns."""

import dataclasses

import numpy as np
import pytest

from spacetime_en._util.terminal import Terminal
from spacetime_en.compare.leaderboard import (
    Difference,
    Leaderboard,
    Standing,
    differences_to,
    duration,
)
from spacetime_en.intervals import Groups
from spacetime_en.nn.presets import PRESETS

ROW = Standing(
    preset="set-2",
    kind="trained",
    validation=0.011,
    error=0.0123,
    median=0.0045,
    p90=0.031,
    standard_error=0.0007,
    deviation=0.00042,
    velocity=0.2,
    ade=None,
    fde=None,
    behind=0.0,
    interval=None,
    seconds=300.4,
    seeds=3,
    rate=4e-3,
    parameters=103_170,
    forecasts_per_second=800.0,
    symmetry=3e-7,
)


def behind(preset, share, low, high, **changes):
    """A row whose error is above the best's by a fraction of it."""
    best = ROW.error
    return dataclasses.replace(
        ROW,
        preset=preset,
        error=(1 + share) * best,
        behind=share * best,
        interval=(low * best, high * best),
        **changes,
    )


def board(*rows, **more):
    return Leaderboard("charged: 300 test windows", "set-2", [ROW, *rows], "300 recordings", **more)


def test_words_name_the_best_its_equals_and_the_cheapest_of_them():
    fast = behind("egnn", 0.02, -0.01, 0.05, forecasts_per_second=5000.0)
    slow = behind("set-flow", 0.01, -0.02, 0.04)
    far = behind("mlp", 1.0, 0.8, 1.2, forecasts_per_second=9000.0)
    said = board(slow, fast, far).words()
    assert said[0].startswith("Best, by validation error: set-2 (test error 0.0123")
    assert said[1] == "No worse, within the interval: set-flow, egnn."
    assert said[2] == "The cheapest of these: egnn (5,000 forecasts a second)."
    solved = behind("ridge", 0.03, -0.01, 0.07, kind="solved")
    assert board(fast, solved).words()[2] == "The cheapest of these: ridge (solved, not trained)."
    assert board(far).words()[1] == "All others are worse, beyond their 95% intervals."


def test_words_say_no_more_than_is_known():
    lower = behind("egnn", -0.2, -0.3, -0.1)
    assert board(lower).words()[1:] == [
        "Lower on the test windows, though validation did not choose it: egnn.",
        "The cheapest of these: set-2 (800 forecasts a second).",
    ]
    untold = dataclasses.replace(ROW, preset="mlp", error=2 * ROW.error, behind=ROW.error)
    said = board(untold).words()
    assert said[1:] == ["Whether these are worse is not known, with 300 recordings: mlp."]
    table = board(untold).table()
    column = table.columns.index("to the best [95 %]")
    texts = [cells[column].text for _, cells in table.rows]
    assert texts == ["–", "+100 % [not known]"]
    assert not any("bootstrap" in note for note in table.notes)
    assert any("bootstrap over 300 recordings" in note for note in board(lower).table().notes)
    assert len(board().words()) == 1  # nothing about others, where there are none


def test_a_chosen_model_without_a_test_has_no_row_and_no_other_takes_its_place(capsys):
    rows = [dataclasses.replace(ROW, preset=preset, behind=None) for preset in ("egnn", "mlp")]
    shown = Leaderboard("charged", "set-2", rows, "300 recordings", {"set-2": "NaN."})
    assert (shown.best, shown.equals, shown.cheapest) == (None, [], None)
    (said,) = shown.words()
    assert said.startswith("Best, by validation error: set-2, which could not be tested; no other")
    shown.print(Terminal())
    assert "Left out: set-2: NaN." in capsys.readouterr().out
    column = shown.table().columns.index("to the best [95 %]")
    assert [cells[column].text for _, cells in shown.table().rows] == ["–", "–"]


def test_differences_are_to_any_model_that_has_a_result():
    windows = np.random.default_rng(0).exponential(size=40)
    groups = Groups(np.arange(40), 40, blocks=False)
    results = [
        {"preset": preset, "seeds": [{"position": [*(windows + more)]}, {"position": [*windows]}]}
        for preset, more in (("set-2", 0.0), ("egnn", 0.2))
    ]
    to = {preset: differences_to(preset, results, groups) for preset in ("set-2", "egnn", "mlp")}
    assert to["set-2"]["egnn"].mean == pytest.approx(0.1)
    assert to["set-2"]["egnn"].interval == pytest.approx((0.1, 0.1))
    assert to["egnn"]["set-2"].mean == pytest.approx(-0.1)
    assert to["egnn"]["egnn"] == Difference(0.0, None)
    assert to["mlp"] == {}


def test_it_fits_into_eighty_columns_with_the_longest_names(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shares = (0.024, -0.03, 0.71, 5.3, 20.0, 12_345.0, 5.56e9, 0.07, 5.56e9)
    rows = [
        behind(preset, share, share - 0.02, 1.1 * share + 0.01, deviation=share * ROW.error)
        for preset, share in zip(sorted(PRESETS, key=len)[-9:], shares, strict=True)
    ]
    rows[-2:] = [dataclasses.replace(row, interval=None) for row in rows[-2:]]
    board(*rows, reasons={"body": "x: this model needs bones."}).print(Terminal())
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:13])) <= 80
    assert "+2.4 % [+0.4, +3.6]" in said
    assert "×21 [21, 23]" in said
    assert "×1.2e4 [1.2e4, 1.4e4]" in said
    assert "+7.0 % [not known]" in said
    assert "×5.6e9 [not known]" in said
    assert "Left out: body: x: this model needs bones." in said
    assert all(f"\n{row.preset} " in said for row in rows)  # a table, and not a line for each cell


def test_the_report_has_the_columns_that_the_terminal_has_no_room_for():
    table = board(behind("mlp", 1.0, 0.8, 1.2)).table()
    assert {"p90", "velocity", "parameters", "forecasts/s", "equivariance error"} < set(
        table.columns
    )
    assert "ADE" not in table.columns
    paths = dataclasses.replace(ROW, ade=0.3, fde=0.6)
    shown = Leaderboard("zara1", "set-2", [paths], "20 blocks").table()
    assert {"ADE", "FDE"} < set(shown.columns)


def test_an_equivariance_error_that_is_no_number_is_infinite():
    table = board(behind("lstm", 1.0, 0.8, 1.2, symmetry=None)).table()
    column = table.columns.index("equivariance error")
    assert [cells[column].text for _, cells in table.rows] == ["3e-07", "∞"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (0.211, "0.211 s"), (31.24, "31.2 s"), (300.4, "5.0 min")]
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text
