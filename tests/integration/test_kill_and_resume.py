"""Killed at any moment and resumed, a run ends with the same weights, bit for bit."""

import json
import signal
import time

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from tests.integration.commands import TASK, finish, start

RUN = [
    *("train", "set", *TASK, "--model.hidden", "8", "--model.layers", "1", "--model.blocks", "2"),
    *("--lr", "1e-2", "--batch-size", "16", "--schedule", "cosine", "--ema", "0.9"),
    *("--save-every", "0", "--validate-every", "7"),  # dropout is on, as in the paper
]


def steps_done(run):
    try:
        with safe_open(run / "checkpoints" / "last.safetensors", framework="pt") as file:
            return json.loads(file.metadata()["checkpoint"])["progress"]["step"]
    except (OSError, RuntimeError, SafetensorError):  # just being replaced
        return -1


def kill_at(process, run, step, how=signal.SIGKILL):
    """Wait until a run has come so far, then kill it, whatever it is doing."""
    end = time.monotonic() + 200
    while steps_done(run) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.003)
    process.send_signal(how)
    process.communicate()


def test_killed_twice_and_interrupted_once(tmp_path, cache, tiny_task):
    run, whole = tmp_path / "killed", tmp_path / "whole"
    budget = ["--steps", "300"]
    for step in (40, 130):
        process = start(*RUN, *budget, "--out", str(run), "--resume", cache=cache)
        kill_at(process, run, step)
        assert process.returncode == -signal.SIGKILL
        assert step <= steps_done(run) < 300
    process = start(*RUN, *budget, "--out", str(run), "--resume", cache=cache)
    kill_at(process, run, 200, signal.SIGTERM)
    assert process.returncode == 130
    last = [start("train", "--out", str(run), "--resume", cache=cache)]
    last.append(start(*RUN, *budget, "--out", str(whole), cache=cache))
    for process in last:
        assert "best at step" in finish(process)
    assert steps_done(run) == steps_done(whole) == 300
    for name in ("best", "last"):
        with (
            safe_open(run / "checkpoints" / f"{name}.safetensors", framework="pt") as a,
            safe_open(whole / "checkpoints" / f"{name}.safetensors", framework="pt") as b,
        ):
            assert set(a.keys()) == set(b.keys())
            for key in a.keys():  # noqa: SIM118
                assert (a.get_tensor(key) == b.get_tensor(key)).all(), key
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (run, whole))
    assert all((ours[key] == theirs[key]).all() for key in theirs)
