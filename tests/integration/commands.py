"""The command line in another process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import TINY

TASK = [
    *("--task", "charged", "--task.target_steps", str(TINY["target_steps"])),
    *("--task.counts", *map(str, TINY["counts"]), "--task.length", str(TINY["length"])),
]


def start(
    *arguments: str, cache: Path, program: Sequence[str] = ("-m", "spacetime_en"), **options
) -> subprocess.Popen:
    """Start ``spacetime ARGUMENTS``, or another `program` of Python's with them."""
    environment = {**os.environ, "SPACETIME_EN_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        env=environment | options.pop("env", {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen, timeout: float = 300) -> str:
    """Wait for the process, which must succeed. Returns: its output."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out
