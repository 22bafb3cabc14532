"""How time and memory are measured: side by side, and in a process of its own."""

import gc
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def side_by_side(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each; they take turns, so that a slow moment strikes all alike.

    In each turn the second run counts: after the first, caches and memory are as in a loop of one's
    own, and not as the others left them.
    """
    for run in candidates.values():  # kernels are chosen and compiled
        run()
        run()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            run()
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many other processes that never rest, until the block ends or this process does."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def peak_memory(make: Callable[..., Callable[[], Any]], *arguments: Any) -> int:
    """Bytes by which running what `make(*arguments)` returns raises the peak of a new process.

    What it needs to be there before it runs, weights and inputs, is not counted.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, arguments))


def _peak(make: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> int:
    run = make(*arguments)
    gc.collect()
    status, marks = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not marks.exists():  # not Linux: what was needed to load libraries hides small peaks
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        return unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    marks.write_text("5")  # the peak begins anew
    before = _kilobytes(status, "VmRSS")
    run()
    return 1024 * (_kilobytes(status, "VmHWM") - before)


def _kilobytes(status: Path, entry: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(entry))
    return int(line.split()[1])


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The power with which costs grow with sizes: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
