"""Killed at any moment and resumed, a run ends with the same weights, bit for bit."""

import json

from safetensors import safe_open
from safetensors.torch import load_file

from tests.integration.commands import TASK, finish, start

RUN = [
    *("train", "set", *TASK, "--model.hidden", "8", "--model.layers", "1", "--model.blocks", "2"),
    *("--lr", "1e-2", "--batch-size", "16", "--schedule", "cosine", "--ema", "0.9"),
    *("--save-every", "0", "--validate-every", "7"),  # dropout is on, as in the paper
]


# A run that sends itself a signal while it writes a checkpoint, half of which is then on disk.
STRUCK = """
import os, signal
from spacetime_en import cli
from spacetime_en.runs import run

write, left = run.Run._write, int(os.environ["WRITES"])

def struck(self, path, state):
    global left
    left -= 1
    if left == 0:
        path.write_bytes(b"half a checkpoint")
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
    write(self, path, state)

run.Run._write = struck
cli.main()
"""


def steps_done(run):
    with safe_open(run / "checkpoints" / "last.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["checkpoint"])["progress"]["step"]


def test_killed_twice_and_interrupted_once(tmp_path, cache, tiny_task):
    run, whole = tmp_path / "killed", tmp_path / "whole"
    budget = ["--steps", "40"]
    reached = 0
    for how, status in (("SIGKILL", -9), ("SIGKILL", -9), ("SIGTERM", 130)):
        process = start(
            *(*RUN, *budget, "--out", str(run), "--resume"),
            cache=cache,
            program=["-c", STRUCK],
            env={"WRITES": "10", "SIGNAL": how},
        )
        process.communicate()
        assert process.returncode == status
        assert reached < steps_done(run) < 40
        reached = steps_done(run)
    last = [start("train", "--out", str(run), "--resume", cache=cache)]
    last.append(start(*RUN, *budget, "--out", str(whole), cache=cache))
    for process in last:
        assert "best at step" in finish(process)
    assert steps_done(run) == steps_done(whole) == 40
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
