"""Forecasts for new data: every window of every run, from the data to a file in one stream."""

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveFloat, PositiveInt, checked
from spacetime_en.data.compatibility import data_mismatches, prepare_for
from spacetime_en.data.cut import Cut
from spacetime_en.data.graphs import as_graph, max_neighbours, read_frames
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import MOST_STEPS
from spacetime_en.data.writers import open_writer
from spacetime_en.graph import Forecast
from spacetime_en.nn.forecaster import Forecaster

TOLERANCE = 1e-3  # the share of the model's times by which frames may be off
# In a batch that is chosen here: enough that what every batch costs is little beside what its
# windows do, and few enough for a model's tensors, of 128 channels a node, to be 16 MB each.
NODES, EDGES = 1 << 15, 1 << 20


@checked
def predict(
    model: Forecaster,
    trajectories: Trajectories,
    out: str | os.PathLike[str],
    *,
    length: PositiveInt,
    frame_time: float | None,
    horizon_time: PositiveFloat,
    radius: PositiveFloat | None = None,
    k: PositiveInt | None = None,
    batch_size: PositiveInt | None = None,
    last: bool = False,
    progress: Callable[[int], None] | None = None,
    notify: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Path:
    """Forecast the state `horizon_time` after every window, and write the forecasts to a file.

    The file holds a run for every run of the data, and a frame for every window, at the time for
    which it is forecast; attributes and box are the data's. In a box, forecasts continue the path
    of their window, and may lie outside the cell. Data of another kind than the model was trained
    on are refused.

    Memory: the windows of one batch, the forecasts of one run (of several short ones, if they fit a
    batch), and a few numbers for every time, whatever the number and the length of the runs.

    Args:
        model: on any device and of any dtype; it forecasts in evaluation mode, without gradients.
        trajectories: the data, with the attributes that the model was trained on; matched by name
            if the model records them (``trained_on``), else in that order.
        out: what to write; see :mod:`spacetime_en.data.writers` for the formats.
        length: L, the number of frames of a window.
        frame_time: time between the frames of a window; None if there is only one.
        horizon_time: time from the last frame of a window to its forecast.
        radius, k: which nodes are neighbours, see :class:`~spacetime_en.data.Windows`.
        batch_size: windows forecast at once; None: as many as are fast, see :func:`fast_batch`.
        last: only the newest window of each run.
        progress: called with the number of windows finished since the last call, of
            :func:`count_windows` in all.
        notify: called with warnings.
    Returns: the path written.
    """
    t, cut = trajectories, _cut(trajectories, length, frame_time, last)
    data, origin = prepare_for(model, t)
    for sentence in () if model.trained_on is None else data_mismatches(model.trained_on, t):
        notify(f"warning: {sentence}")
    S, N, n = len(cut), *t.x.shape[2:]
    batch_size = fast_batch(length, N, radius, k) if batch_size is None else batch_size
    counts = _counts(t, cut)
    about = {
        "model": type(model).__name__,
        "length": int(length),
        "frame_time": None if frame_time is None else float(frame_time),
        "horizon_time": float(horizon_time),
    }
    meta = {key: value for key, value in t.meta.items() if key != "velocities"}
    times = t.times[cut.ends] + horizon_time
    steps = _steps(t, cut.ends, horizon_time)
    with open_writer(out, like=t) as writer, _evaluating(model):
        for group in _parts(len(t), max(1, batch_size // S)):
            x, v = np.empty((2, len(group), S, N, n))
            inside = np.arange(S) < counts[group, None]  # windows that end before their run does
            rows, columns = inside.nonzero()
            for part in _parts(len(rows), batch_size):
                i, s = rows[part], columns[part]
                at = group[i], cut.frames(s)
                forecast = _forecast(model, data, *at, horizon_time, radius, k, origin)
                x[i, s], v[i, s] = forecast.x.numpy() + origin, forecast.v.numpy()
                if progress is not None:
                    progress(len(part))
            # After the end of a run its last forecast fills up, as in Trajectories.from_runs.
            until = (
                np.arange(len(group))[:, None],
                np.minimum(np.arange(S), counts[group, None] - 1),
            )
            writer.append(
                Trajectories(
                    x[until],
                    v[until],
                    steps,
                    times,
                    {name: values[group] for name, values in t.attributes.items()},
                    meta | {"forecast": about},
                    t.box,
                    lengths=None if t.lengths is None else counts[group],
                )
            )
    return Path(out)


def fast_batch(length: int, nodes: int, radius: float | None = None, k: int | None = None) -> int:
    """The number of windows to forecast at once: about as fast as any, in bounded memory.

    Args:
        length: L, the number of frames of a window.
        nodes: N.
        radius, k: which nodes are neighbours, as in :func:`predict`.
    """
    frames = min(NODES // nodes, EDGES // (nodes * max_neighbours(nodes, radius, k)))
    return max(1, frames // length)


@checked
def count_windows(
    trajectories: Trajectories, *, length: PositiveInt, frame_time: float | None, last: bool = False
) -> int:
    """The number of windows that :func:`predict` forecasts from, in all runs."""
    return int(_counts(trajectories, _cut(trajectories, length, frame_time, last)).sum())


def _cut(trajectories: Trajectories, length: int, frame_time: float | None, last: bool) -> Cut:
    """The windows of a run, found by the times of its frames; no target is needed."""
    times = trajectories.times
    _check_window(trajectories, length, frame_time)
    spacing = 0.0 if frame_time is None or length == 1 else frame_time  # 0.0: never asked for
    if length > len(times):
        raise _no_window(times, length, frame_time)
    # Counted from the last frames, so that each is forecast from once.
    cut = Cut.find(times, spacing * np.arange(1 - length, 1), TOLERANCE)
    if len(cut) == 0:
        raise _no_window(times, length, frame_time)
    if last and trajectories.lengths is not None:
        raise InputError(
            "last: the runs have different lengths, and end at different times; forecast from all "
            "windows, or from one run at a time."
        )
    return dataclasses.replace(cut, anchors=cut.anchors[-1:]) if last else cut


def _counts(trajectories: Trajectories, cut: Cut) -> NDArray[np.int64]:
    """The number of windows inside each run, (num,)."""
    if trajectories.lengths is None:
        return np.full(len(trajectories), len(cut))
    counts = np.searchsorted(cut.ends, trajectories.lengths)
    if (counts == 0).any():
        run = int(counts.argmin())
        raise InputError(
            f"x: run {run} has {trajectories.lengths[run]} frames, too few for a window, which "
            f"takes {cut.ends[0] + 1}; leave it out."
        )
    return counts


def _check_window(trajectories: Trajectories, length: int, frame_time: float | None) -> None:
    if length > 1 and (frame_time is None or not 0 < frame_time < math.inf):
        raise InputError(
            f"frame_time: expected the time between the {length} frames, found {frame_time!r}."
        )
    if length == 1 and not trajectories.measured_velocities:
        raise InputError(
            "v: the model reads one frame, and of one frame there are no differences; give data "
            "with velocities."
        )


def _no_window(times: NDArray[np.float64], length: int, frame_time: float | None) -> InputError:
    """The error for data in which the model finds no window."""
    reads = f"the model reads {length} frames, {frame_time:g} apart"
    if len(times) < length:
        return InputError(f"x: {reads}, and the data have {len(times)}; give longer runs.")
    if len(Cut.find(times, np.array([0.0, frame_time]), TOLERANCE)):
        return InputError(
            f"times: {reads}, and the data never have so many such frames in a row; give runs "
            "without gaps."
        )
    gaps = np.diff(times)
    low, high = f"{gaps.min():g}", f"{gaps.max():g}"
    spacing = low if low == high else f"{low} to {high}"
    return InputError(
        f"times: {reads}, and the data's frames are {spacing} apart; give the right times, in the "
        "model's unit, or resample the data."
    )


def _steps(
    trajectories: Trajectories, ends: NDArray[np.int64], horizon_time: float
) -> NDArray[np.int64]:
    """The steps of the forecasts, (S,): the data's count continued; 0, 1, ... if that cannot be."""
    times, steps = trajectories.times, trajectories.steps
    if len(steps) > 1:
        step_time = (times[-1] - times[0]) / (steps[-1] - steps[0])
        ahead = float(horizon_time / step_time)
        even = np.allclose(np.diff(times), step_time * np.diff(steps), rtol=TOLERANCE, atol=0)
        if even and 0 < round(ahead) < MOST_STEPS and abs(ahead - round(ahead)) < TOLERANCE:
            return steps[ends] + round(ahead)
    return np.arange(len(ends))


def _forecast(
    model: Forecaster,
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    horizon_time: float,
    radius: float | None,
    k: int | None,
    origin: NDArray[np.float64],
) -> Forecast:
    """Forecast from the windows at `frames` (b, L) of `runs` (b,); in double precision."""
    parameter = next(model.parameters(), torch.empty(0, dtype=torch.float64))
    graph = as_graph(
        trajectories,
        read_frames(trajectories, runs, frames, origin),
        np.full((len(runs), 1), horizon_time),
        # In half precision, differences of frames would be lost.
        dtype=torch.promote_types(parameter.dtype, torch.float32),
        radius=radius,
        k=k,
    )
    forecast = model(graph.to(parameter.device, parameter.dtype))
    for what, value in (("positions", forecast.x), ("velocities", forecast.v)):
        bad = ~value.isfinite().flatten(1).all(1)
        if bad.any():
            first = int(bad.nonzero()[0])
            time = trajectories.times[frames[first, -1]]
            raise InputError(
                f"model: it forecasts {what} that are NaN or infinite from run {runs[first]}, the "
                f"window that ends at time {time:g}; are the data in the model's units?"
            )
    return forecast.to(torch.device("cpu"), torch.float64)


@contextmanager
def _evaluating(model: Forecaster) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _parts(total: int, size: int) -> Iterator[NDArray[np.int64]]:
    """0, ..., total - 1 in parts of at most `size`."""
    for start in range(0, total, size):
        yield np.arange(start, min(start + size, total))
