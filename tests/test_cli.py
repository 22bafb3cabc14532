import json
import sys

import pytest

from spacetime_en import PRESETS
from spacetime_en.cli import main


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["spacetime", *arguments])
    main()
    return capsys.readouterr().out


def test_models_as_json(monkeypatch, capsys):
    rows = json.loads(run(monkeypatch, capsys, "models", "--json"))
    assert {row["preset"] for row in rows} == set(PRESETS)
    assert {row["nodes"] for row in rows} == {5, 20, 30}
    found = {(row["preset"], row["nodes"]): row for row in rows}
    assert found["lstm", 20] == {
        "preset": "lstm",
        "nodes": 20,
        "parameters": 1_269_833,
        "equivariant": False,
    }
    assert found["set", 30]["equivariant"] is True


def test_models_as_a_table_that_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    out = run(monkeypatch, capsys, "models")
    assert "28,044,458" in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_demo_draws_a_picture(monkeypatch, capsys, tmp_path):
    out = run(monkeypatch, capsys, "demo", "--out", str(tmp_path))
    assert "assert_equivariant(model, graph) passed" in out
    assert (tmp_path / "equivariance.png").read_bytes().startswith(b"\x89PNG")


def test_version(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version").startswith("0.")


def test_a_place_that_cannot_be_written_ends_in_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["spacetime", "demo", "--out", str(tmp_path / "file" / "x")])
    with pytest.raises(SystemExit, match=r"error: .*file"):
        main()


def test_bad_input_ends_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spacetime", "models", "--nodes", "1"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value).startswith("error: nodes: ")
