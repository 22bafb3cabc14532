import json

from spacetime_en._util.terminal import Terminal
from spacetime_en.report.tables.conservation import describe_conservation, print_conservation
from tests.conservation.systems import chained, simulated


def test_a_description_is_plain_and_fits_80_columns(monkeypatch, capsys):
    description = describe_conservation(simulated("springs"))
    assert json.loads(json.dumps(description)) == description
    assert [one["name"] for one in description["conserved"]] == [
        *("energy", "momentum", "angular momentum")
    ]
    monkeypatch.setenv("COLUMNS", "80")
    print_conservation(description, Terminal())
    printed = capsys.readouterr().out
    assert "energy = Σ |v|²/2 + 0.0500 Σ spring_ij r²" in printed
    assert "centre of mass" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_if_nothing_is_conserved_it_says_so(capsys):
    print_conservation(describe_conservation(chained(friction=1.0)), Terminal())
    printed = capsys.readouterr().out
    assert "not: any combination of" in printed
    assert "centre of mass" not in printed
