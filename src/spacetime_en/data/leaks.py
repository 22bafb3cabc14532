"""What of one split stands in another, so that the test is known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import Trajectories
    from spacetime_en.data.windows import Windows

REPEATED = 0.1  # the share that may be the same by chance: recordings hold some frames twice
_PAIRS = (("train", "val"), ("train", "test"), ("val", "test"))
_AT_ONCE = 1 << 24  # bytes read at a time


def overlaps(splits: dict[str, Windows]) -> Iterable[str]:
    """Frames of a run that two splits share, one sentence each."""
    for a, b in _PAIRS:
        one, two = splits[a], splits[b]
        same_time = one.frames.min() <= two.frames.max() and two.frames.min() <= one.frames.max()
        shared = np.intersect1d(one.runs, two.runs).size > 0
        if _same_data(one.trajectories, two.trajectories) and same_time and shared:
            yield f"{a} and {b} share a trajectory, so that the test is known beforehand."


def copies(splits: dict[str, Windows]) -> Iterable[str]:
    """Runs, or many windows, that stand in two splits bit for bit, one sentence each."""
    hashed = {name: _by_run(windows) for name, windows in splits.items()}
    for a, b in _PAIRS:
        _, known = hashed[a]
        runs, keys = hashed[b]
        copied = np.isin(keys, known)
        whole = sorted(set(runs.tolist()) - set(runs[~copied].tolist()))
        if whole:
            yield (
                f"run {whole[0]}, of {b}, is a copy of one of {a}, bit for bit "
                f"({len(whole)} in all), so that the test is known beforehand; leave copies out."
            )
        elif copied.mean() > REPEATED:
            yield (
                f"{copied.mean():.0%} of the {b} windows are copies of {a} windows, bit for bit, "
                "so that the test is known beforehand."
            )


def _by_run(windows: Windows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The run of every window, and a hash of its positions; of large sets one a run suffices."""
    if windows.is_kept:
        every = np.arange(len(windows))
        return windows.places(every)[0], hashes(windows, every, slice(None))
    last = windows.last_of_runs()
    return windows.places(last)[0], hashes(windows, last, slice(-1, None))


def hashes(windows: Windows, index: NDArray[np.int64], columns: slice) -> NDArray[np.int64]:
    """A number for each window that only windows of the same positions have, bit for bit.

    Args:
        windows: any.
        index: which of them, (b,).
        columns: which of their L + 1 frames count; the last is the target's.
    Returns: (b,); the numbers are others in every process.
    """
    x = windows.trajectories.x
    at_once = max(1, _AT_ONCE // (8 * (windows.length + 1) * x.shape[2] * x.shape[3]))
    found = np.empty(len(index), dtype=np.int64)
    for start in range(0, len(index), at_once):
        runs, frames = windows.places(index[start : start + at_once])
        frames = frames[:, columns]
        read = x[np.broadcast_to(runs[:, None], frames.shape), frames]
        found[start : start + at_once] = [hash(one.tobytes()) for one in read]
    return found


def _same_data(a: Trajectories, b: Trajectories) -> bool:
    """Whether two sets are one, in memory or on disk."""
    file = getattr(a.x, "filename", None)
    return a is b or a.x is b.x or (file is not None and file == getattr(b.x, "filename", None))
