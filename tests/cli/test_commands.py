import json
import os
import subprocess
import sys

import numpy as np
import pytest

from spacetime_en import PRESETS
from spacetime_en.cli import main
from spacetime_en.data import Trajectories


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
        "symmetries": {"translation": False, "rotation": False, "permutation": False},
    }
    assert found["set", 30]["equivariant"] is True


def test_models_as_a_table_that_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    out = run(monkeypatch, capsys, "models")
    assert "28,044,458" in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_what_data_conserve(monkeypatch, capsys, tmp_path):
    out = str(tmp_path / "set")
    options = ("--num", "300", "--save", *(str(step) for step in range(0, 1001, 100)))
    run(monkeypatch, capsys, "simulate", "springs", "--out", out, *options)
    task = ("--task.length", "6", "--task.target-steps", "1..5")
    found = json.loads(run(monkeypatch, capsys, "conservation", out, *task, "--json"))
    assert [one["name"] for one in found["conserved"]] == ["energy", "momentum", "angular momentum"]
    monkeypatch.setenv("COLUMNS", "80")
    text = run(monkeypatch, capsys, "conservation", out, *task)
    assert "momentum = Σ v" in text
    assert max(map(len, text.splitlines())) <= 80
    with pytest.raises(SystemExit, match="paths: 8 to learn from"):
        run(monkeypatch, capsys, "conservation", out, *task, "--task.counts", "8", "30", "30")


def test_simulate_in_shards_then_info(monkeypatch, capsys, tmp_path):
    out = str(tmp_path / "set")
    common = ("simulate", "charged", "--num", "40", "--out", out)
    assert "shard 0/2 written" in run(monkeypatch, capsys, *common, "--shard", "0/2")
    assert "Trajectories(x=(40, 11, 5, 3)" in run(monkeypatch, capsys, *common, "--shard", "1/2")
    picture = tmp_path / "p.png"
    text = run(monkeypatch, capsys, "data", "info", out, "--json", "--picture", str(picture))
    info = json.loads(text)
    assert info["splits"] == {"train": 32, "val": 4, "test": 4}
    assert info["horizon"] == pytest.approx(10)
    assert set(info["straight_line"]["position_mse"]) >= {"mean", "median", "p90"}
    assert info["drift"]["momentum"]["median"] < 1e-3
    assert picture.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    text = run(monkeypatch, capsys, "data", "info", out)
    assert "last frame, position MSE" in text
    assert max(map(len, text.splitlines())) <= max(80, len(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.png", "set"]
    monkeypatch.setattr(sys, "argv", ["spacetime", "data", "info", out, "--picture", str(picture)])
    with pytest.raises(SystemExit, match=r"p.png: exists already"):
        main()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_data_of_any_dimension_are_drawn(monkeypatch, capsys, tmp_path, n):
    x = np.random.default_rng(0).standard_normal((1, 50, 3, n)).cumsum(1)
    np.savez(tmp_path / "a.npz", x=x)
    out, picture = tmp_path / "set", tmp_path / "p.png"
    run(monkeypatch, capsys, "data", "import", str(tmp_path / "a.npz"), "--out", str(out))
    run(monkeypatch, capsys, "data", "info", str(out), "--picture", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_pictures_show_names_as_they_are_in_formats_that_are_known(monkeypatch, capsys, tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 50, 3, 2)).cumsum(1)
    out = tmp_path / "$x_{ [/x] \u4e2d"
    Trajectories.from_arrays(x).save(out)
    run(monkeypatch, capsys, "data", "info", str(out), "--picture", str(tmp_path / "$p$.svg"))
    assert (tmp_path / "$p$.svg").read_bytes().startswith(b"<?xml")
    for name in ("p", "p.txt"):
        monkeypatch.setattr(
            sys, "argv", ["spacetime", "data", "info", str(out), "--picture", str(tmp_path / name)]
        )
        with pytest.raises(SystemExit, match=r"expected a name that ends in .*\.png"):
            main()


def test_info_is_of_the_task_that_will_be_trained(monkeypatch, capsys, tmp_path):
    out = tmp_path / "set"
    Trajectories.from_arrays(np.random.default_rng(0).standard_normal((12, 20, 3, 2))).save(out)
    monkeypatch.chdir(tmp_path)
    options = ("--task.length", "4", "--task.target-steps", "1..3", "--json")
    info = json.loads(run(monkeypatch, capsys, "data", "info", *options, "set"))
    assert (info["frames"], info["target_steps"]) == (4, [1, 2, 3])
    assert info["last_frame"]["ade"] > 0
    assert sorted(os.listdir(tmp_path)) == ["set"]


def test_import_says_what_was_understood(monkeypatch, capsys, tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 50, 3, 2)).cumsum(1)
    np.savez(tmp_path / "a.npz", x=x, mass=np.ones(3))
    out = tmp_path / "set"
    text = run(monkeypatch, capsys, "data", "import", str(tmp_path / "a.npz"), "--out", str(out))
    assert "1 run of 50 frames, 3 nodes in 2 dimensions" in text
    assert "attributes: mass" in text
    text = run(monkeypatch, capsys, "data", "info", str(out), "--json")
    assert json.loads(text)["features"] == 2


def test_import_of_a_table_says_what_was_understood(monkeypatch, capsys, tmp_path):
    rows = "".join(
        f"{10 * f},p{i},{f},{i},{f * i}\n" for f in range(5) for i in range(2) if f != 2 * i
    )
    (tmp_path / "walk.csv").write_text("n,who,x,y,speed\n" + rows)
    command = ["data", "import", str(tmp_path / "walk.csv"), "--out", str(tmp_path / "set")]
    command += ["--columns.frame", "n", "--columns.id", "who", "--time-step", "0.4"]
    text = run(monkeypatch, capsys, *command)
    assert "columns: frame: n; id: who; positions: x, y; ignored: speed." in text
    assert "1 recording, 2 nodes, at most 2 at a time; 5 frames, 10 frame numbers apart." in text
    assert "observed: 88.9 % of the frames from each node's first to its last; 1 gap" in text
    assert Trajectories.open(tmp_path / "set").meta["node_names"] == ["p1", "p0"]
    command[4] = str(tmp_path / "whole")
    assert "1 frame filled in" in run(monkeypatch, capsys, *command, "--interpolate", "1")


def test_import_says_that_nan_is_not_observed(monkeypatch, capsys, tmp_path):
    x = np.zeros((5, 2, 2))
    x[1, 0] = np.nan
    np.savez(tmp_path / "a.npz", x=x)
    out = str(tmp_path / "set")
    text = run(monkeypatch, capsys, "data", "import", str(tmp_path / "a.npz"), "--out", out)
    assert "observed: 90.0 % of nodes and frames; NaN positions are not observed." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "info", "charge"), "error: task: there is no 'charge'; did you mean 'charged'"),
        (("data", "import", "nowhere.xyz", "--out", "x"), "error: nowhere.xyz: there is no such"),
        (("simulate", "planets", "--out", "x"), "error: system: there is no 'planets'"),
        (("simulate", "charged", "--out", "x", "--shard", "1of2"), "error: shard: expected i/n"),
        (("models", "--nodes"), "error: nodes: expected one or more numbers of nodes, found none"),
    ],
)
def test_bad_arguments_end_in_one_line(monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "argv", ["spacetime", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value).startswith(message)


def test_version(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version").startswith("0.")


def test_a_place_that_cannot_be_written_ends_in_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["spacetime", "demo", "--out", str(tmp_path / "file" / "x")])
    with pytest.raises(SystemExit, match=r"error: .*file"):
        main()


def test_a_demo_goes_into_no_folder_of_something_else(monkeypatch, tmp_path):
    (tmp_path / "mine").write_text("")
    monkeypatch.setattr(sys, "argv", ["spacetime", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"holds mine; choose another folder"):
        main()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_working_directory_that_is_gone(tmp_path):
    (folder := tmp_path / "gone").mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "spacetime_en", "--version"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_bad_input_ends_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spacetime", "models", "--nodes", "1"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value).startswith("error: nodes: ")
