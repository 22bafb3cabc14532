"""What the doctor finds, and says about it."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from spacetime_en._util.terminal import Terminal
from spacetime_en.report.tables import doctor
from spacetime_en.report.tables.doctor import ENABLES, examine, print_findings

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"dev", "docs", "test-all"}


def test_every_extra_says_what_it_enables():
    assert set(ENABLES) == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


def test_versions_are_those_that_are_installed():
    findings = examine()
    assert findings["versions"]["torch"] == version("torch")
    assert findings["problems"] == []
    assert findings["machine"]["devices"][0] == "cpu"


@pytest.fixture
def requirements(monkeypatch):
    """An installation with three extras: one that is there, one too old, one missing."""
    lines = [
        "numpy>=1",
        "torch>=1000",
        "pyg-of-nobody>=2; extra == 'pyg'",
        "numpy>=1; extra == 'ase'",
        "numpy>=1000; extra == 'ray'",
    ]
    monkeypatch.setattr(doctor, "requires", lambda name: lines)
    return [Requirement(line) for line in lines]


def test_extras_that_are_missing_or_too_old_come_with_the_command(requirements, capsys):
    findings = examine()
    found = {one["extra"]: one for one in findings["extras"]}
    assert found["ase"]["installed"]
    assert found["pyg"]["missing"] == ["pyg-of-nobody>=2"]
    assert found["ray"]["missing"] == ["numpy>=1000"]
    assert found["pyg"]["install"] == "pip install 'spacetime-en[pyg]'"
    assert findings["problems"] == [f"torch: {version('torch')}, but >=1000 is needed"]
    print_findings(findings, Terminal())
    printed = capsys.readouterr().out
    assert "  yes  ase " in printed
    assert "  no   ray " in printed
    assert "but >=1000 is needed" in printed


def test_measured_data_are_where_the_variable_says(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPACETIME_EN_ETH_UCY", raising=False)
    (tmp_path / "walk.amc").write_text("")
    monkeypatch.setenv("SPACETIME_EN_CMU", str(tmp_path))
    findings = examine()
    bodies, people = findings["measured data"]
    assert (bodies["folder"], bodies["found"]) == (str(tmp_path), True)
    assert (people["folder"], people["found"]) == (str(tmp_path / "cache" / "eth_ucy"), False)
    assert findings["cache"]["exists"] is False
    assert not (tmp_path / "cache").exists()
    print_findings(findings, Terminal())
    assert "not made yet" in capsys.readouterr().out


def test_what_is_printed_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("SPACETIME_EN_CACHE", "/cache")
    for variable in ("SPACETIME_EN_CMU", "SPACETIME_EN_ETH_UCY"):
        monkeypatch.setenv(variable, "/data")
    print_findings(examine(), Terminal())
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
