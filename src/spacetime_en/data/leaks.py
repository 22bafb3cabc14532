"""Leaks between splits: runs or windows that occur in two of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import Trajectories
    from spacetime_en.data.windows import Windows

REPEATED = 0.1  # the fraction that may coincide by chance: recordings repeat some frames
_PAIRS = (("train", "val"), ("train", "test"), ("val", "test"))
_AT_ONCE = 1 << 24  # bytes read at a time


def overlaps(splits: dict[str, Windows]) -> Iterable[str]:
    """Yield a sentence for each pair of splits that share frames of a run."""
    for a, b in _PAIRS:
        one, two = splits[a], splits[b]
        if not (hasattr(one, "cut") and hasattr(two, "cut")):
            continue  # the source of windows cut by the user is unknown
        if not _same_data(one.trajectories, two.trajectories):
            continue
        spans_1, spans_2 = one.spans(), two.spans()
        _, at_1, at_2 = np.intersect1d(one.runs, two.runs, return_indices=True)
        (first_1, end_1), (first_2, end_2) = spans_1[at_1].T, spans_2[at_2].T
        if ((first_1 <= end_2) & (first_2 <= end_1)).any():
            yield f"{a} and {b} share a trajectory: one split leaks into the other."


def copies(splits: dict[str, Windows]) -> Iterable[str]:
    """Yield a sentence for each pair of splits with copied runs, or with many copied windows."""
    # In sets too large to keep in memory, one frame of each run is read.
    if all(windows.fits_in_memory for windows in splits.values()):
        chosen, columns = {k: np.arange(len(w)) for k, w in splits.items()}, slice(None)
    else:
        chosen = {k: w.last_in_each_run() for k, w in splits.items()}
        seen_last = splits["train"].length - 1
        columns = slice(seen_last, seen_last + 1)
    hashed = {
        name: (windows.runs_of(chosen[name]), hashes(windows, chosen[name], columns))
        for name, windows in splits.items()
    }
    for a, b in _PAIRS:
        _, seen = hashed[a]
        runs, keys = hashed[b]
        copied = np.isin(keys, seen)
        whole = np.setdiff1d(runs, runs[~copied])
        if len(whole):
            yield (
                f"run {whole[0]}, of {b}, is a copy of one of {a}, bit for bit "
                f"({len(whole)} in all): one split leaks into the other; leave copies out."
            )
        elif copied.mean() > REPEATED:
            yield (
                f"{copied.mean():.0%} of the {b} windows are copies of {a} windows, bit for bit, "
                "which leaks one split into the other."
            )


def hashes(windows: Windows, index: NDArray[np.int64], columns: slice) -> NDArray[np.int64]:
    """Hash the positions of windows, bit for bit.

    Args:
        windows: any.
        index: which of them, (b,).
        columns: which of their L + T frames to include; the last T are the targets'.
    Returns: (b,); the hashes differ from process to process.
    """
    x = windows.trajectories.x
    frames = windows.length + len(windows.target_steps)
    at_once = max(1, _AT_ONCE // (8 * frames * x.shape[2] * x.shape[3]))
    keys = np.empty(len(index), dtype=np.int64)
    for start in range(0, len(index), at_once):
        here = slice(start, start + at_once)
        keys[here] = _hashed(windows, index[here], columns)
    return keys


def _hashed(windows: Windows, index: NDArray[np.int64], columns: slice) -> list[int]:
    if not windows.ragged:
        runs, frames = windows.locate(index)
        frames = frames[:, columns]
        read = windows.trajectories.x[np.broadcast_to(runs[:, None], frames.shape), frames]
        return [hash(one.tobytes()) for one in read]
    # Slots carry no meaning: the same people in any order are the same window.
    graph, target = windows.without_noise()[torch.from_numpy(index)]
    paths = torch.cat([graph.x, target.x], dim=1)[:, columns].transpose(1, 2).numpy()
    counts = windows.node_counts[index]
    return [
        hash(b"".join(sorted(path.tobytes() for path in one[:count])))
        for one, count in zip(paths, counts, strict=True)
    ]


def _same_data(a: Trajectories, b: Trajectories) -> bool:
    """Whether two sets of trajectories are the same object, or the same file."""
    file = getattr(a.x, "filename", None)
    return a is b or a.x is b.x or (file is not None and file == getattr(b.x, "filename", None))
