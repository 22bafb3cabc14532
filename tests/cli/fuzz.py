"""Command lines as a careless user types them: correct ones with a few mistakes."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from spacetime_en.cli import main

# Correct command lines, in the folder that `world` makes; OUT is a name that does not exist yet.
RIGHT = [
    "models --nodes 5 20 --json",
    "simulate charged --out OUT --num 8 --nodes 3 --dims 2 --save 0 10 20 --seed 1",
    "simulate springs --out OUT --num 9 --steps 100 --shard 0/3 --scheme verlet --engine local",
    "data info data --json",
    "data info data --picture OUT.png",
    "data info data --task.length 3 --task.stride 1",
    "data info charged",
    "conservation data --json --task.length 3",
    "conservation charged",
    "data import walk.npz --out OUT",
    "data import walk.npz --out OUT --columns.frame t --interpolate 2 --frame-step 1",
    "data import walk.npz --out OUT --time-step 0.5 --select all --topology walk.npz",
    "train linear --data data --out OUT --task.length 3 --steps 2 --lr 1e-3 --batch-size 5",
    "train mlp --data data --out OUT --task.length 3 --model.hidden 4 --steps 1 --seed 3 --ema 0.9",
    "train egnn --data data --out OUT --model.hidden 4 --model.layers 1 --steps 1 --task.k 2",
    "train --config config.yaml --out OUT --epochs 1 --max-time 9s --clip 2 --warmup 0.1",
    "train --out run --resume --steps 1 --loggers csv --save-every 5 --validate-every 1",
    "train linear --data data --out OUT --steps 1 --precision 64-true --devices 1 --num-nodes 1",
    "search linear --data data --task.length 3 --steps 1 --trials 1 --out OUT --space lr=1e-4:1e-2",
    "evaluate run --json --split val",
    "evaluate run --data data --task.length 3 --task.counts 10 1 1",
    "predict run walk.npz --out OUT.npz --last --batch-size 3",
    "predict run data --out OUT --time-step 1",
    "export run --format torch-export --out OUT.pt2",
    "animate run --out OUT.html --window 0 --frames 5 --fps 10",
    "animate run run --out OUT.gif --frames 3",
    "demo --out OUT --seed 1",
    "reproduce baselines --scale quick --out OUT --workers 1 --targets true",
    "bench training --json",
]
# More of these is more work, not a mistake.
BUDGETS = ("--steps", "--epochs", "--max-time", "--trials", "--save", "--task.counts", "--num")
HUGE = [str(10**12), str(10**30), "9" * 5000, "1e308", str(2**31), str(2**63), str(2**64)]
NUMBERS = [
    *("0", "-1", "-0.0", "nan", "inf", "-inf", "1e309", "1.5", "1e-320", "2", "7", "1_0"),
    *("", " ", "None", "true", "0x10", "\u0967\u0968", "2/1", "0/0", "1:", "charged"),
]
NAMES = [
    *("", " ", ".", "..", "/dev/null", "/dev/full", "folder", "file", "file/x", "missing/x"),
    *("run", "data", "walk.npz", "latin1.yaml", "config.yaml", "loop", "dangling", "empty.npz"),
    *("odd $names [/x] é/data", "x" * 300, "~", "*", "a b", "a\\b", "%s", "{x}", "OUT", "OUT.npz"),
    *("[/x]", "[bold]", "$a_{", "a\nb", "a\x1b[2J", "a\udcff", "\u202eabc", "é×", "OUT.h5"),
    *("charged", "set", "os.system", "a.b.C", "..x", "pretrained:x", "pretrained:charged", "None"),
    *("a=1:2:3", "lr=", "lr=1,2", "model.x=1,2", "- -", "-1", "3", "1e309", "nan", "true"),
]
OPTIONS = [
    "--outt",
    "--lr",
    "--model.hidden",
    "--task.target_steps",
    "--json",
    "--no-json",
    "-x",
    "--=",
]


def world(folder: Path) -> None:
    """Create what the command lines refer to; the working directory is `folder`."""
    walk = np.random.default_rng(0).standard_normal((12, 12, 3, 3)).cumsum(1)
    np.savez(folder / "walk.npz", x=walk, times=np.arange(12.0))
    (folder / "folder").mkdir()
    (folder / "file").write_text("mine")
    (folder / "empty.npz").write_text("")
    (folder / "latin1.yaml").write_bytes(b"preset: \xe9\n")
    (folder / "config.yaml").write_text(
        "preset: linear\ntask: {data: data, length: 3}\ntraining: {steps: 1}\n"
    )
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    for name in ("data", "odd $names [/x] é/data"):
        assert (made := call("data", "import", "walk.npz", "--out", name)).status == 0, made
    right = "train linear --data data --out run --task.length 3 --steps 1 --loggers csv"
    assert (made := call(*right.split())).status == 0, made


def command_line(random: Random, name: str) -> list[str]:
    """A command line with one to three mistakes; `name` is for its output."""
    words = random.choice(RIGHT).split()
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        place = random.randrange(1, len(words))
        kind = random.choice(["replace"] * 12 + ["drop", "insert", "option", "twice"])
        if kind == "replace":
            values = [i for i, word in enumerate(words) if i and not word.startswith("-")]
            place = random.choice(values or [place])
            words[place] = _odd(random, words[:place], words[place])
        elif kind == "drop":
            del words[place]
        elif kind == "insert":
            words.insert(place, _odd(random, words[:place], "a"))
        elif kind == "option":
            words[place:place] = [random.choice(OPTIONS), _odd(random, ["--lr"], "1")]
        elif kind == "twice":
            words += words[place:]
        if len(words) < 2:
            break
    return [word.replace("OUT", f"out-{name}") for word in words]


def _odd(random: Random, before: list[str], right: str) -> str:
    """A value other than `right`, often of the same kind."""
    option = next((word for word in reversed(before) if word.startswith("--")), "")
    is_number = right[:1].isdigit() if random.random() < 0.8 else random.random() < 0.5
    if is_number and option not in BUDGETS:
        return random.choice(NUMBERS + HUGE + HUGE)
    return random.choice(NUMBERS if is_number else NAMES)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command.

    Args:
        status: of the process.
        out, err: what it printed.
    """

    status: int
    out: str
    err: str

    @property
    def problem(self) -> str | None:
        """Why this is neither a correct result nor one sentence; None: it is."""
        if "Traceback" in self.err + self.out:
            return "a traceback"
        if "this is a bug" in self.err:
            return "an error that nobody expected"
        if self.status == 0:
            return None
        if not self.err:
            return "a bad status without a word"
        last = self.err.rstrip("\n").splitlines()[-1]
        if self.status != 2 and not last.startswith("error: "):  # (2: the parser's own box)
            return "no sentence"
        return None


def call(*words: str) -> Outcome:
    """``spacetime WORDS`` in this process."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    status = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["spacetime", *words])
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                main()
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
                if isinstance(stop.code, str):
                    print(stop.code, file=sys.stderr)
    said: list[Any] = []
    for stream in (stdout, stderr):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Outcome(status, *said)
