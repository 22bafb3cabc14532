"""The table of presets."""

import sys

from spacetime_en import PRESETS
from spacetime_en._util.terminal import Terminal
from spacetime_en.report.tables.models import describe_presets, print_presets


def test_every_preset_has_its_count_and_symmetries_for_each_size(capsys):
    rows = describe_presets([5, 20])
    assert [(row["preset"], row["nodes"]) for row in rows] == [
        (preset, nodes) for preset in PRESETS for nodes in (5, 20)
    ]
    counts = {(row["preset"], row["nodes"]): row["parameters"] for row in rows}
    assert counts["set", 5] == counts["set", 20] == 796_058
    assert counts["set-adjacency", 20] == 5_994_458
    print_presets(rows, Terminal())
    printed = capsys.readouterr().out
    assert all(preset in printed for preset in PRESETS)
    assert "5,994,458" in printed


def test_a_size_given_twice_is_counted_once():
    assert describe_presets([5, 5]) == describe_presets([5])


def test_presets_whose_package_is_missing_are_listed_with_what_they_need(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "e3nn", None)
    rows = {row["preset"]: row for row in describe_presets([5])}
    assert set(rows) == set(PRESETS)
    lacking = {preset for preset, row in rows.items() if "needs" in row}
    assert lacking == {"tfn", "se3-transformer"}
    print_presets(list(rows.values()), Terminal())
    printed = capsys.readouterr().out
    assert "tfn: this needs the package e3nn: pip install 'spacetime-en[e3nn]'." in printed
