"""The output on a terminal of 80 columns."""

from benchmarks.symmetry_power import world
from spacetime_en._util.terminal import Terminal
from spacetime_en.symmetries.study import ASKED_ABOUT, SymmetryReport, find_symmetries
from spacetime_en.symmetries.words import print_report


def test_one_line_for_each_symmetry(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_report(find_symmetries(world(runs=60, seed=1, along_x=True)), Terminal())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in ASKED_ABOUT:
        assert sum(line.startswith(name) and ":" not in line for line in lines) == 1
    assert any("boost: untested" in line for line in lines)


def test_less_than_nothing_is_not_explained(capsys):
    report = SymmetryReport("task", 100, "100 recordings", -0.004, (), None, None, ())
    print_report(report, Terminal())
    assert "of which 0% of the square" in " ".join(capsys.readouterr().out.split())
