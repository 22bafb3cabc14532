"""``spacetime symmetries`` as a user types it."""

import json
import sys

import pytest

from benchmarks.symmetry_power import world
from spacetime_en.cli import main


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["spacetime", "symmetries", *map(str, arguments)])
    main()


def test_a_data_set_as_json(tmp_path, monkeypatch, capsys):
    world(runs=150, wind=0.8).train.trajectories.save(tmp_path / "data")
    options = ("--task.length", 4, "--task.stride", 1, "--task.target-steps", 1)
    run(monkeypatch, "--data", tmp_path / "data", *options, "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["symmetries"]["rotation"]["verdict"] == "broken"
    assert said["windows"] == 3 * 135


def test_neither_a_task_nor_data(monkeypatch):
    with pytest.raises(SystemExit, match="--task NAME or --data FOLDER"):
        run(monkeypatch)
