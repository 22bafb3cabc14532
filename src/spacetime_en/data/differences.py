"""Velocities as differences of positions, and the time step that fits both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en import geometry
from spacetime_en._util.errors import InputError


def velocities(
    x: NDArray[Any],
    times: NDArray[Any],
    box: NDArray[Any] | None,
    observed: NDArray[np.bool_] | None = None,
    ids: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Backward differences of each node's own observations; the first copies the second's.

    A node that was observed only once is taken to be at rest.

    Args:
        x: positions, (R, T, N, n).
        times: of the frames, (T,).
        box: (n, n) or None.
        observed: (R, T, N); None: all. Velocities elsewhere are 0.
        ids: the node in each slot, (R, T, N); None: always the same.
    Returns: (R, T, N, n).
    """
    if x.shape[1] < 2:
        raise InputError("v: velocities by differences need at least two frames; give v.")
    if observed is not None:
        v = np.zeros_like(x)
        for run, seen in enumerate(observed):
            _differences(x[run], times, box, seen, None if ids is None else ids[run], out=v[run])
        return v
    v, path = np.empty_like(x), unwrap_paths(x, box)
    with np.errstate(all="ignore"):  # overflow is caught when values are checked
        np.subtract(path[:, 1:], path[:, :-1], out=v[:, 1:])
        v[:, 1:] /= np.diff(times)[None, :, None, None]
    v[:, 0] = v[:, 1]
    return v


def _differences(
    x: NDArray[Any],
    times: NDArray[Any],
    box: NDArray[Any] | None,
    observed: NDArray[np.bool_],
    ids: NDArray[np.int64] | None,
    out: NDArray[Any],
) -> None:
    """Write the velocities of one run, (T, N, n), to `out`, which is 0 before."""
    before = previous_observation(observed, ids)
    frame, slot = np.nonzero(before >= 0)
    earlier = before[frame, slot]
    with np.errstate(all="ignore"):
        step = shortest(x[frame, slot] - x[earlier, slot], box)
        step /= (times[frame] - times[earlier])[:, None]
    out[frame, slot] = step
    second = before[earlier, slot] < 0  # the observation before it was the node's first
    out[earlier[second], slot[second]] = step[second]


def previous_observation(
    observed: NDArray[np.bool_], ids: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The frame of a node's previous observation at each of its observations, else -1, (T, N)."""
    frame = np.arange(len(observed))[:, None]
    newest = np.maximum.accumulate(np.where(observed, frame, -1), axis=0)
    before = np.full(observed.shape, -1)
    before[1:] = newest[:-1]
    if ids is not None:
        before[np.take_along_axis(ids, before.clip(min=0), axis=0) != ids] = -1
    before[~observed] = -1
    return before


def shortest(difference: NDArray[Any], box: NDArray[Any] | None) -> NDArray[Any]:
    """Differences of positions by the minimum image convention, (..., n)."""
    if box is None:
        return difference
    cell = torch.from_numpy(np.array(box, dtype=difference.dtype))[None]
    flat = torch.from_numpy(np.ascontiguousarray(difference)).reshape(1, -1, len(box))
    return geometry.minimum_image(flat, cell).reshape(difference.shape).numpy()


def unwrap_paths(x: NDArray[Any], box: NDArray[Any] | None) -> NDArray[Any]:
    """Unwrap paths across the periodic boundary, (..., T, N, n)."""
    if box is None:
        return x
    paths = torch.from_numpy(np.ascontiguousarray(x)).reshape(-1, *x.shape[-3:])
    cell = torch.from_numpy(np.array(box, dtype=x.dtype)).expand(len(paths), -1, -1)
    return geometry.unwrap(paths, cell).reshape(x.shape).numpy()


def time_step(
    x: NDArray[Any],
    v: NDArray[Any],
    steps: NDArray[Any],
    box: NDArray[Any] | None,
    observed: NDArray[np.bool_] | None = None,
    ids: NDArray[np.int64] | None = None,
) -> float:
    """The time step at which positions and velocities agree best; 1 if none does."""
    if x.shape[1] < 2:
        return 1.0
    with np.errstate(all="ignore"):
        moved = np.diff(unwrap_paths(x, box), axis=1) if observed is None else np.diff(x, axis=1)
        mean_v = (v[:, 1:] + v[:, :-1]) / 2 * np.diff(steps)[None, :, None, None]
        if observed is not None:
            pair = observed[:, 1:] & observed[:, :-1]
            pair &= True if ids is None else ids[:, 1:] == ids[:, :-1]
            moved, mean_v = shortest(moved[pair], box), mean_v[pair]
        step = float((moved * mean_v).sum() / max((mean_v * mean_v).sum(), 1e-300))
    return step if 0 < step < np.inf else 1.0
