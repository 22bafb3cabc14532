"""Any command line gives a correct result, or one sentence and a non-zero status."""

import hashlib
import inspect
import sys
import types
from pathlib import Path
from random import Random

import pytest

import spacetime_en.report.demo as demo
import spacetime_en.reproduce as reproduce
import spacetime_en.reproduce.report as report
from spacetime_en.compare.workers import Outcome
from tests.cli.fuzz import call, command_line, world


@pytest.fixture(scope="module")
def folder(cache, tiny_task, tmp_path_factory):
    """A user's folder, in which commands are fast."""
    folder = tmp_path_factory.mktemp("around") / "folder"
    folder.mkdir()
    quick = {"name": "charged", "counts": (40, 12, 12), "target_steps": 10}
    bench = types.SimpleNamespace(SECTIONS={"training": None}, report=lambda *_: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACETIME_EN_CACHE", str(cache))
        patch.chdir(folder)
        patch.setattr(demo, "TASK", quick)
        patch.setattr(inspect.unwrap(demo.run_demo), "__defaults__", (1,))
        patch.setattr(reproduce, "carry_out_all", lambda *_: Outcome({}))
        patch.setattr(report, "write_report", lambda out, scale: out / "report.html")
        patch.setitem(sys.modules, "benchmarks.speed", bench)
        patch.setattr(sys, "path", list(sys.path))
        world(folder)
        yield folder


def fingerprint(folder):
    """A hash of everything that commands read and must not change."""
    names = ["file", "walk.npz", "config.yaml", "latin1.yaml", "empty.npz"]
    shards = (path for path in Path(folder, "data").rglob("shard-*/*"))
    files = sorted([*(folder / name for name in names), *shards])
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in files}


def check(folder, seed, count):
    random, before = Random(seed), fingerprint(folder)
    for number in range(count):
        words = command_line(random, f"{seed}-{number}")
        outcome = call(*words)
        assert outcome.problem is None, f"{words} gave {outcome}"
        now = fingerprint(folder)
        assert {path: now.get(path) for path in before} == before, f"{words} changed files"
        assert not list(folder.rglob(".spacetime-en-*")), f"{words} left something behind"


@pytest.mark.parametrize("seed", range(4))
def test_what_a_careless_user_types(folder, seed):
    check(folder, seed, count=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_what_many_careless_users_type(folder, seed):
    check(folder, seed, count=50)
