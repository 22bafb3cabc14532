"""Measure time, interleaved in one process, and memory, in a separate process."""

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
    """Median seconds of each candidate; they take turns, so that a slow moment affects all alike.

    In each turn only the second run counts: the first one warms the caches.
    """
    for run in candidates.values():  # to select and compile kernels
        run()
        run()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep other processes busy until the block, or this process, ends."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def peak_memory(make: Callable[..., Callable[[], Any]], *arguments: Any) -> int:
    """Bytes by which calling the result of `make(*arguments)` raises a new process's peak memory.

    What exists before the call, such as weights and inputs, is not counted.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, arguments))


def _peak(make: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> int:
    run = make(*arguments)
    gc.collect()
    status, marks = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not marks.exists():  # not Linux: the memory for loading libraries hides small peaks
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        return unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    marks.write_text("5")  # resets the peak
    before = _kilobytes(status, "VmRSS")
    run()
    return 1024 * (_kilobytes(status, "VmHWM") - before)


def _kilobytes(status: Path, entry: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(entry))
    return int(line.split()[1])


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent with which costs grow with size: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
