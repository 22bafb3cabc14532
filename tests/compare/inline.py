"""The engine without processes: jobs run one after the other, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spacetime_en.compare import comparison
from spacetime_en.compare.comparison import Compared, compare
from spacetime_en.compare.job import Job
from spacetime_en.compare.workers import Outcome
from tests.conftest import TINY

TASK = {"name": "charged", **TINY}
PRESETS = ("last-frame", "straight-line", "ridge-shared", "linear", "egnn")


def carry_out_here(jobs: Sequence[Job], folder: Path, *others: Any) -> Outcome:
    """Like :func:`carry_out_all`, in this process."""
    failed = {}
    for job in jobs:
        if job.result(folder) is None:
            try:
                job.summary(job.carry_out(folder, lambda *at: None))
            except Exception as error:
                failed[job.name] = str(error)
    return Outcome(failed)


def compare_here(out: Path, cache: Path, task: dict[str, Any] = TASK, **how: Any) -> Compared:
    """A small comparison whose numbers do not depend on a clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACETIME_EN_CACHE", str(cache))
        patch.setattr(comparison, "carry_out_all", carry_out_here)
        settings = {"presets": PRESETS, "budget": "30 steps", "seeds": 2} | how
        return compare(task, out, **settings)
