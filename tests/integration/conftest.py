"""Fixtures shared by the integration tests."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spacetime_en.reproduce.plan import AUDITABLE, SCALES, TABLES, Experiment, plan, table
from tests.integration.commands import TASK, start

HANGS = 3_600  # seconds: even on a busy machine, a process that takes longer hangs


def reproduce(folder: Path, *arguments: str, check: bool = True) -> Any:
    """``spacetime reproduce`` in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "spacetime_en", "reproduce", "--out", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    if check:
        assert done.returncode == 0, done.stderr
    return done


class ComparedByCommand(NamedTuple):
    """What ``spacetime compare`` left, and its output."""

    folder: Path
    said: Any


MODELS = ("last-frame", "straight-line", "ridge-shared", "egnn")
COMPARE = ("compare", *MODELS, *TASK, "--budget", "30 steps", "--seeds", "2")


@pytest.fixture(scope="session")
def compared_by_command(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> ComparedByCommand:
    """Four models, compared as a user does it."""
    folder = tmp_path_factory.mktemp("compared") / "x"
    process = start(*COMPARE, "--out", str(folder), cache=cache)
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 0, err
    return ComparedByCommand(folder, out + err)


class Made(NamedTuple):
    """What was reproduced at scale quick, then audited.

    Args:
        folder: of the results.
        planned: the experiments.
        audited: those of the audit.
        said: by the command that reproduced.
        audit: by the command that audited.
    """

    folder: Path
    planned: list[Experiment]
    audited: list[Experiment]
    said: Any
    audit: Any

    @property
    def tables(self) -> list[str]:
        """The tables that have something to show, except the audit's."""
        made = {(e.data, e.model) for e in self.planned if not e.trial}
        names = []
        for name in TABLES:
            if any((e.data, e.model) in made for e in table(name, SCALES["quick"])):
                names += [name, "horizons-velocity"] if name == "horizons" else [name]
        return names


@pytest.fixture(scope="session")
def part(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One table and its audit, which give something to every figure and most other tables."""
    return _make(tmp_path_factory.mktemp("part"), cache, ["baselines"], ["baselines"])


@pytest.fixture(scope="session")
def everything(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Everything reproduced, and the whole audit."""
    return _make(tmp_path_factory.mktemp("everything"), cache, [], [])


@pytest.fixture(params=["part", pytest.param("everything", marks=pytest.mark.slow)])
def made(request: pytest.FixtureRequest) -> Made:
    """Either."""
    return request.getfixturevalue(request.param)


def _make(folder: Path, cache: Path, names: list[str], audited: list[str]) -> Made:
    quick = SCALES["quick"]
    audit = [e for name in audited or AUDITABLE for e in table(name, quick, zero=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACETIME_EN_CACHE", str(cache))
        said = reproduce(folder, *names), reproduce(folder, *audited, "--targets", "zero")
    return Made(folder, plan(names or list(TABLES), quick), audit, *said)
