"""Forecasts for new data: every window of every run, streamed from the data to a file."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveFloat, PositiveInt, checked
from spacetime_en.data.compatibility import data_mismatches, prepare_for
from spacetime_en.data.cut import Cut
from spacetime_en.data.graphs import Frames, as_graph, max_neighbours, read_frames
from spacetime_en.data.tables import TABLE_ENDINGS
from spacetime_en.data.trajectories import LazyArray, Trajectories
from spacetime_en.data.valid import MOST_STEPS
from spacetime_en.data.writers import open_forecasts, open_writer
from spacetime_en.facts import DataFacts, few_numbers
from spacetime_en.graph import Forecast
from spacetime_en.nn.forecaster import Forecaster

TIME_TOLERANCE = 1e-3  # the relative error in frame times that is tolerated
# For the automatic batch size: large enough that the overhead per batch is small, and small enough
# that a tensor of 128 channels per node takes 16 MB.
NODES, EDGES = 1 << 15, 1 << 20


@checked
def predict(
    model: Forecaster,
    trajectories: Trajectories,
    out: str | os.PathLike[str],
    *,
    length: PositiveInt,
    frame_time: float | None,
    horizon_times: tuple[PositiveFloat, ...],
    radius: PositiveFloat | None = None,
    k: PositiveInt | None = None,
    batch_size: PositiveInt | None = None,
    last: bool = False,
    progress: Callable[[int], None] | None = None,
    notify: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Path:
    """Forecast from every window, and write the forecasts to a file.

    A table has one row per node, target time and window. Other files hold trajectories: for one
    target time, a run for every run of the data with a frame for every window, at the time for
    which it is forecast; for several, a run for every window, with a frame for each target time.
    Nodes are those of the window's last frame. Attributes and box are those of the data. In a box,
    forecasts continue the path of their window, and may lie outside the cell. Data of another kind
    than the model was trained on are rejected.

    Memory: the windows of one batch, the forecasts of one run (or of several short ones that fit
    into a batch), and a few numbers per window, whatever the number and length of the runs.

    Args:
        model: on any device and of any dtype; it forecasts in evaluation mode, without gradients.
        trajectories: the data, with the attributes that the model was trained on; matched by name
            if the model records them (``trained_on``), else by order.
        out: what to write; see :mod:`spacetime_en.data.writers` for the formats.
        length: L, the number of frames of a window.
        frame_time: time between the frames of a window; None if there is only one.
        horizon_times: times from the last frame of a window to its forecasts, increasing.
        radius, k: which nodes are neighbours, see :class:`~spacetime_en.data.Windows`.
        batch_size: windows forecast at once; None: chosen for speed, see :func:`fast_batch`.
        last: only the newest window of each run.
        progress: called with the number of windows finished since the last call, of
            :func:`count_windows` in all.
        notify: called with warnings.
    Returns: the path written.
    """
    t = trajectories
    horizon = np.array(horizon_times)
    if len(horizon) == 0 or (np.diff(horizon) <= 0).any():
        raise InputError("horizon_times: expected one or more times, in increasing order.")
    windows = _Windows.find(t, length, frame_time, last)
    table = Path(out).suffix.lower() in TABLE_ENDINGS
    if not table and len(horizon) == 1:
        _check_frames(t, windows, last)
    data, origin = prepare_for(model, t)
    for sentence in () if model.trained_on is None else data_mismatches(model.trained_on, t):
        notify(f"warning: {sentence}")
    if without := int((np.diff(windows.stops, prepend=0) == 0).sum()):
        takes = windows.cut.ends[0] + 1
        notify(f"warning: {without} of {len(t)} runs are shorter than a window, of {takes} frames.")
    if batch_size is None:
        batch_size = fast_batch(length, t.x.shape[2], radius, k)
    about = {
        "model": type(model).__name__,
        "length": int(length),
        "frame_time": None if frame_time is None else float(frame_time),
        "horizon_times": horizon.tolist(),
    }
    meta = {key: value for key, value in t.meta.items() if key not in ("velocities", "splits")}
    meta |= {"forecast": about}

    def forecasts(first: int, stop: int) -> Iterator[_Forecasts]:
        for part in _parts(stop - first, batch_size):
            runs, numbers = windows.locate(first + part)
            read = read_frames(data, runs, windows.cut.frames(numbers), origin)
            yield _Forecasts(
                numbers, read, _forecast(model, data, read, horizon, radius, k), origin
            )
            if progress is not None:
                progress(len(part))

    with _evaluating(model):
        if table:
            _write_table(out, t, windows, horizon, forecasts)
        elif len(horizon) == 1:
            _write_frames(out, t, windows, horizon, meta, forecasts, batch_size)
        else:
            _write_paths(out, t, windows, horizon, meta, forecasts)
    return Path(out)


@dataclass(frozen=True)
class _Windows:
    """The windows to forecast from: in the order of their runs, those with at least one node.

    Args:
        cut: the windows of a run.
        stops: the cumulative number of windows in the runs, (R,).
        kept: indices of the windows that have a node, (W,); None: all.
    """

    cut: Cut
    stops: NDArray[np.int64]
    kept: NDArray[np.int64] | None = None

    @classmethod
    def find(cls, t: Trajectories, length: int, frame_time: float | None, last: bool) -> _Windows:
        cut = _cut(t, length, frame_time)
        windows = cls(cut, np.cumsum(_counts(t, cut)))
        if t.observed is not None:
            kept = []
            for part in _parts(len(windows), 10_000):
                runs, numbers = windows.locate(part)
                kept.append(part[np.asarray(t.observed[runs, cut.ends[numbers]]).any(1)])
            windows = dataclasses.replace(windows, kept=np.concatenate(kept))
            if len(windows) == 0:
                raise InputError("observed: no node is there in the last frame of any window.")
        return windows.newest() if last else windows

    def newest(self) -> _Windows:
        """The last window in each run."""
        which = np.arange(len(self))
        runs, numbers = self.locate(which)
        ends = np.append(runs[1:] != runs[:-1], True)
        if len(self.stops) == ends.sum() and (numbers[ends] == numbers[-1]).all():
            cut = dataclasses.replace(self.cut, anchors=self.cut.anchors[numbers[-1:]])
            return _Windows(cut, np.arange(1, len(self.stops) + 1))
        return dataclasses.replace(self, kept=(which if self.kept is None else self.kept)[ends])

    def __len__(self) -> int:
        return int(self.stops[-1]) if self.kept is None else len(self.kept)

    def locate(self, which: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The run of each window, and the window's index in its run, (b,) each."""
        which = which if self.kept is None else self.kept[which]
        runs = np.searchsorted(self.stops, which, side="right")
        return runs, which - np.concatenate([[0], self.stops])[runs]

    def of_runs(self, first: int, stop: int) -> tuple[int, int]:
        """The range of windows of the runs from `first` up to, but excluding, `stop`."""
        ends = np.concatenate([[0], self.stops])[[first, stop]]
        here = ends if self.kept is None else np.searchsorted(self.kept, ends)
        return int(here[0]), int(here[1])


@dataclass(frozen=True)
class _Forecasts:
    """The forecasts of a batch of windows, in the slots of the data.

    Args:
        numbers: indices of the windows in their runs, (b,).
        read: the frames that the model saw.
        forecast: for the nodes in these frames, in double precision on the CPU.
        origin: of its positions, (n,).
    """

    numbers: NDArray[np.int64]
    read: Frames
    forecast: Forecast
    origin: NDArray[np.float64]

    @property
    def there(self) -> NDArray[np.bool_] | None:
        """Mask of the forecast's places that hold nodes, (b, M); None: all."""
        mask = self.forecast.mask
        return None if mask is None else mask[:, 0].numpy()

    def put(self, x: NDArray[Any], v: NDArray[Any], at: Any) -> None:
        """Write positions and velocities to arrays (..., T, N, n), at an index for each window."""
        ours = self.forecast.x.numpy() + self.origin, self.forecast.v.numpy()
        if self.there is None:
            x[at], v[at] = ours
            return
        b, place = self.there.nonzero()
        slots = place if self.read.slots is None else self.read.slots[b, place]
        index = (*(i[b] for i in at), slice(None), slots) if at else ()
        for array, values in zip((x, v), ours, strict=True):
            array[index] = values[b, :, place]


ForecastBatches = Callable[[int, int], Iterator[_Forecasts]]


def _write_table(
    out: str | os.PathLike[str],
    t: Trajectories,
    windows: _Windows,
    horizon: NDArray[np.float64],
    forecasts: ForecastBatches,
) -> None:
    """Write one row per node, target time and window."""
    with open_forecasts(out, like=t) as table:
        for batch in forecasts(0, len(windows)):
            runs, last = batch.read.runs, batch.read.frames[:, -1]
            ids = None
            if t.ids is not None:
                assert batch.read.slots is not None
                ids = t.ids[runs[:, None], last[:, None], batch.read.slots]
            mask, spread = batch.forecast.mask, batch.forecast.spread
            table.append(
                runs,
                last,
                np.broadcast_to(horizon, (len(runs), len(horizon))),
                batch.forecast.x.numpy() + batch.origin,
                batch.forecast.v.numpy(),
                ids,
                None if mask is None else mask.numpy(),
                None if spread is None else spread.numpy(),
            )


def _write_frames(
    out: str | os.PathLike[str],
    t: Trajectories,
    windows: _Windows,
    horizon: NDArray[np.float64],
    meta: dict[str, Any],
    forecasts: ForecastBatches,
    batch_size: int,
) -> None:
    """Write a run for every run of the data, with a frame for every window."""
    S, N, n = len(windows.cut), *t.x.shape[2:]
    ends = windows.cut.ends
    times, steps = t.times[ends] + horizon[0], _steps(t, ends, float(horizon[0]))
    counts = None if t.lengths is None else np.searchsorted(ends, t.lengths)
    with open_writer(out, like=t) as writer:
        for group in _parts(len(t), max(1, batch_size // S)):
            x, v = np.zeros((2, len(group), S, 1, N, n))
            for batch in forecasts(*windows.of_runs(group[0], group[-1] + 1)):
                batch.put(x, v, (batch.read.runs - group[0], batch.numbers))
            x, v = x[:, :, 0], v[:, :, 0]
            observed = ids = None
            if t.observed is not None:
                observed = np.asarray(t.observed[group[:, None], ends])
                ids = None if t.ids is None else t.ids[group[:, None], ends]
            if counts is not None:
                # After a run's end, its last forecast is repeated, as in Trajectories.from_runs.
                until = np.minimum(np.arange(S), counts[group, None] - 1)
                x, v = (np.take_along_axis(a, until[..., None, None], axis=1) for a in (x, v))
            writer.append(
                Trajectories(
                    x,
                    v,
                    steps,
                    times,
                    {name: values[group] for name, values in t.attributes.items()},
                    meta,
                    t.box,
                    lengths=None if counts is None else counts[group],
                    observed=observed,
                    ids=ids,
                )
            )


def _write_paths(
    out: str | os.PathLike[str],
    t: Trajectories,
    windows: _Windows,
    horizon: NDArray[np.float64],
    meta: dict[str, Any],
    forecasts: ForecastBatches,
) -> None:
    """Write a run for every window, with a frame for every target time after its last frame."""
    W, T, N, n = len(windows), len(horizon), *t.x.shape[2:]
    names = t.meta.get("recordings", range(len(t)))
    runs, numbers = windows.locate(np.arange(W))
    last = windows.cut.ends[numbers]
    starts = zip(runs, t.steps[last], strict=True)
    meta = meta | {
        "recordings": [f"{names[run]} after step {step}" for run, step in starts],
        "times": "after the last frame of each window",
    }
    steps = _steps_ahead(t, horizon)

    def paths(rows: slice, x: NDArray[Any], v: NDArray[Any]) -> Trajectories:
        """The runs of some windows, from positions and velocities (b, T, N, n)."""

        def repeated(values: LazyArray | None) -> NDArray[Any] | None:
            if values is None:
                return None
            return np.broadcast_to(values[runs[rows], last[rows]][:, None], x.shape[:3])

        attributes: dict[str, LazyArray] = {k: a[runs[rows]] for k, a in t.attributes.items()}
        observed, ids = repeated(t.observed), repeated(t.ids)
        return Trajectories(
            x, v, steps, horizon, attributes, meta, t.box, observed=observed, ids=ids
        )

    nowhere = np.broadcast_to(0.0, (W, T, N, n))
    with open_writer(out, like=paths(slice(None), nowhere, nowhere)) as writer:
        done = 0
        for batch in forecasts(0, W):
            b = len(batch.numbers)
            x, v = np.zeros((2, b, T, N, n))
            batch.put(x, v, (np.arange(b),))
            writer.append(paths(slice(done, done + b), x, v))
            done += b


def fast_batch(length: int, nodes: int, radius: float | None = None, k: int | None = None) -> int:
    """The number of windows to forecast at once, near the fastest, in bounded memory.

    Arguments as in :func:`predict`; `nodes` is N.
    """
    frames = min(NODES // nodes, EDGES // (nodes * max_neighbours(nodes, radius, k)))
    return max(1, frames // length)


@checked
def target_times(
    data: DataFacts, steps: PositiveInt | None = None, times: tuple[PositiveFloat, ...] = ()
) -> tuple[float, ...]:
    """Times to forecast for, increasing: those of the training, or others.

    Args:
        data: what the model was trained on.
        steps: a path of this many of its frame steps.
        times: after the last frame.
    """
    if steps is not None and times:
        raise InputError("steps, times: target times are chosen by one of them.")
    if any(b <= a for a, b in pairwise(times)):
        raise InputError(f"times: expected increasing times, found {few_numbers(times)}.")
    if steps is not None:
        step = data.frame_time or data.horizon_times[0]
        return tuple(step * (k + 1) for k in range(steps))
    return times or data.horizon_times


@checked
def count_windows(
    trajectories: Trajectories, *, length: PositiveInt, frame_time: float | None, last: bool = False
) -> int:
    """The number of windows that :func:`predict` forecasts from, in all runs."""
    return len(_Windows.find(trajectories, length, frame_time, last))


def _cut(trajectories: Trajectories, length: int, frame_time: float | None) -> Cut:
    """The windows of a run, found by the times of its frames; no target is needed."""
    times = trajectories.times
    _check_window(trajectories, length, frame_time)
    spacing = 0.0 if frame_time is None or length == 1 else frame_time  # 0.0: not used
    if length > len(times):
        raise _no_window(times, length, frame_time)
    # Anchored at the last frames, so that there is one forecast from each.
    cut = Cut.find(times, spacing * np.arange(1 - length, 1), TIME_TOLERANCE)
    if len(cut) == 0:
        raise _no_window(times, length, frame_time)
    return cut


def _counts(trajectories: Trajectories, cut: Cut) -> NDArray[np.int64]:
    """The number of windows inside each run, (num,)."""
    if trajectories.lengths is None:
        return np.full(len(trajectories), len(cut))
    return np.searchsorted(cut.ends, trajectories.lengths)


def _check_frames(trajectories: Trajectories, windows: _Windows, last: bool) -> None:
    """Reject runs without a window, or whose newest windows end at different times."""
    instead = "write a table, such as .csv, or a path of several target times."
    if last and len(windows.cut) > 1:
        raise InputError(f"last: the newest windows of the runs end at different times; {instead}")
    counts = np.diff(windows.stops, prepend=0)
    if trajectories.lengths is not None and (counts == 0).any():
        run = int(counts.argmin())
        raise InputError(
            f"x: run {run} has {trajectories.lengths[run]} frames, too few for a window, which "
            f"takes {windows.cut.ends[0] + 1}; leave it out, or {instead}"
        )


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
    """The error for data that contain no window for the model."""
    reads = f"the model reads {length} frames, {frame_time:g} apart"
    if len(times) < length:
        return InputError(f"x: {reads}, and the data have {len(times)}; give longer runs.")
    if len(Cut.find(times, np.array([0.0, frame_time]), TIME_TOLERANCE)):
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
    """The steps of the forecasts, (S,), continuing the data's count; 0, 1, ... if impossible."""
    times, steps = trajectories.times, trajectories.steps
    if len(steps) > 1:
        step_time = (times[-1] - times[0]) / (steps[-1] - steps[0])
        ahead = float(horizon_time / step_time)
        even = np.allclose(np.diff(times), step_time * np.diff(steps), rtol=TIME_TOLERANCE, atol=0)
        if even and 0 < round(ahead) < MOST_STEPS and abs(ahead - round(ahead)) < TIME_TOLERANCE:
            return steps[ends] + round(ahead)
    return np.arange(len(ends))


def _steps_ahead(trajectories: Trajectories, horizon: NDArray[np.float64]) -> NDArray[np.int64]:
    """The target times in steps of the data, (T,); 1, 2, ... if impossible."""
    ends = np.zeros(1, dtype=np.int64)
    steps = np.array([_steps(trajectories, ends, float(time))[0] for time in horizon])
    steps = steps - trajectories.steps[0]
    return steps if steps[0] > 0 and (np.diff(steps) > 0).all() else np.arange(1, len(horizon) + 1)


def _forecast(
    model: Forecaster,
    trajectories: Trajectories,
    read: Frames,
    horizon: NDArray[np.float64],
    radius: float | None,
    k: int | None,
) -> Forecast:
    """Forecast from windows at the times `horizon` (T,) after their last frames; in double."""
    parameter = next(model.parameters(), torch.empty(0, dtype=torch.float64))
    graph = as_graph(
        trajectories,
        read,
        np.broadcast_to(horizon, (len(read.runs), len(horizon))),
        # Half precision would lose differences between frames.
        dtype=torch.promote_types(parameter.dtype, torch.float32),
        radius=radius,
        k=k,
    )
    graph = graph.to(parameter.device, parameter.dtype)
    trained = horizon if model.trained_on is None else np.array(model.trained_on.horizon_times)
    same = trained.shape == horizon.shape and np.allclose(trained, horizon, rtol=1e-6, atol=0)
    forecast = model(graph) if same else model.at(graph, horizon.tolist())
    for what, value in (("positions", forecast.x), ("velocities", forecast.v)):
        bad = ~value.isfinite().flatten(1).all(1)
        if bad.any():
            first = int(bad.nonzero()[0])
            time = trajectories.times[read.frames[first, -1]]
            raise InputError(
                f"model: it forecasts {what} that are NaN or infinite from run {read.runs[first]}, "
                f"the window that ends at time {time:g}; are the data in the model's units?"
            )
    return forecast.to(torch.device("cpu"), torch.float64)


@contextmanager
def _evaluating(model: Forecaster) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is restored afterwards."""
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
