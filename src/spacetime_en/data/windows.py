"""Cut trajectories into windows: L frames in, the states some time after the last one out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError, amount
from spacetime_en._util.schema import Count, NonNegativeFloat, PositiveFloat, PositiveInt, checked
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.data.compatibility import Trained, prepare_for
from spacetime_en.data.cut import Cut
from spacetime_en.data.graphs import (
    Nodes,
    as_graph,
    chosen_nodes,
    in_first_places,
    max_neighbours,
    observed_again,
    places_of,
    read_frames,
    to_tensor,
)
from spacetime_en.data.rng import Streams
from spacetime_en.data.sizes import of_like_size, share_of_padding
from spacetime_en.data.slots import NOBODY
from spacetime_en.data.steps import TargetSteps, parse_steps
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import as_integers
from spacetime_en.graph import Forecast, SpacetimeGraph

_IN_MEMORY = 1 << 28  # bytes; smaller sets of windows are kept as tensors
_AT_ONCE = 10_000  # windows read at a time
_LOOKED_AT = 1 << 22  # slots of windows examined at a time
Targets = Literal["observed", "clean", "zero"]


class Digest(Protocol):
    """An incremental hash, as in :mod:`hashlib`."""

    def update(self, data: Any, /) -> None: ...


class Windows:
    """A data set of (SpacetimeGraph, Forecast) pairs; read on demand, kept in memory if small.

    ``windows[i]`` is a pair with a batch of one, ``windows[indices]`` a pair with a whole batch.
    Charges become edge attributes c_i c_j, and pair attributes edge attributes; any other node
    attribute is a feature, along with the speed. Positions are relative to ``origin``, which is 0
    unless the data are far from it (:attr:`Trajectories.origin`); add it to forecasts.

    Args:
        trajectories: the data to cut.
        length: L, the number of frames.
        stride: frame intervals from one frame to the next.
        target_steps: frame intervals from the last frame to the target, or to several of them:
            12, (1, 2, 4), "1..12".
        frame_interval: the length of a frame interval in ``trajectories.steps``; None: the
            most common gap between frames.
        runs: the trajectories used, (R,); None: all.
        steps: (first, last) step that windows may touch, targets included, for all runs or for
            each, (R, 2); None: all.
        starts: which windows, as pairs (run, step of the first frame), (W, 2); None: all that fit.
        noise: variance of Gaussian noise on every observed position and velocity.
        noise_seed: of the noise, apart from the seed of the trajectories.
        targets: ``"observed"``, with noise like the inputs, or ``"clean"``. ``"zero"`` is only for
            the audit of published figures: all zero, with noise if there is any.
        nodes: of data in which nodes come and go, those observed in the last frame (``"last"``),
            or in all L + T frames (``"all"``).
        min_nodes: minimum number of nodes in a window, which also has at least one target.
        radius: neighbours are the nodes within this distance in the last frame; None: all nodes.
        k: neighbours are the k nearest nodes in the last frame; None: all nodes.
        dtype: of the tensors.
    """

    @checked
    def __init__(
        self,
        trajectories: Trajectories,
        length: PositiveInt,
        stride: PositiveInt,
        target_steps: TargetSteps,
        *,
        frame_interval: PositiveInt | None = None,
        runs: NDArray[np.int64] | Sequence[int] | None = None,
        steps: tuple[int, int] | NDArray[np.int64] | None = None,
        starts: NDArray[np.int64] | Sequence[tuple[int, int]] | None = None,
        noise: NonNegativeFloat = 0.0,
        noise_seed: Count = 0,
        targets: Targets = "observed",
        nodes: Nodes = "last",
        min_nodes: PositiveInt = 1,
        radius: PositiveFloat | None = None,
        k: PositiveInt | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if length == 1 and not trajectories.measured_velocities:
            raise InputError(
                "length: the data have no velocities, and one frame has no differences; use at "
                "least two frames."
            )
        self.trajectories, self.origin = trajectories, trajectories.origin
        self.length, self.stride, self.target_steps = length, stride, parse_steps(target_steps)
        interval = trajectories.frame_interval if frame_interval is None else frame_interval
        self.frame_interval = interval
        self.runs = np.arange(len(trajectories)) if runs is None else as_integers("runs", runs)
        if self.runs.ndim != 1 or not ((self.runs >= 0) & (self.runs < len(trajectories))).all():
            raise InputError(f"runs: expected numbers from 0 to {len(trajectories) - 1}.")
        self.noise, self.noise_seed, self.targets = noise, noise_seed, targets
        if radius is not None and k is not None:
            raise InputError("radius, k: neighbours are chosen by one of them; give only that.")
        self.nodes, self.min_nodes = nodes, min_nodes
        self.radius, self.k = radius, k
        self.dtype = dtype
        recorded = trajectories.steps
        no_window = InputError(
            f"windows: no window of {length} frames, {stride} frame intervals apart, with a target "
            f"{self.target_steps[-1]} intervals later fits the {len(recorded)} frames at steps "
            f"{recorded[0]} to {recorded[-1]} (an interval is {interval}); use a smaller length, "
            "stride or target_steps."
        )
        last = (length - 1) * stride  # (an integer of any size)
        end = (last + self.target_steps[-1]) * interval
        if length >= len(recorded) or end > recorded[-1] - recorded[0]:
            raise no_window
        seen, ahead = np.arange(length) * stride, last + np.array(self.target_steps)
        self.cut = Cut.find(recorded, np.append(seen, ahead) * interval)
        spans = None if steps is None else as_integers("steps", steps)
        if spans is not None and spans.shape not in ((2,), (len(self.runs), 2)):
            raise InputError(f"steps: expected (first, last), found shape {spans.shape}.")
        if spans is not None and spans.ndim == 1:
            self.cut, spans = self.cut.between(*spans), None
        if len(self.cut) == 0:
            raise no_window
        # Indices into the grid of all runs and starts; None: the whole grid.
        self.numbers = self._select(
            None if starts is None else as_integers("starts", starts), spans
        )
        _, _, slots, _ = trajectories.x.shape
        self.node_counts: NDArray[np.int64] = np.broadcast_to(slots, len(self))  # (W,)
        if trajectories.observed is not None:
            self._keep_populated(wanted=starts is not None)

    def _select(
        self, starts: NDArray[np.int64] | None, spans: NDArray[np.int64] | None
    ) -> NDArray[np.int64] | None:
        """The requested windows that lie inside their run and its steps in `spans` (R, 2)."""
        lengths = self.trajectories.lengths
        count, ends = len(self.cut), self.cut.ends
        if starts is None:
            if lengths is None and spans is None:
                return None
            inside = np.ones((len(self.runs), count), dtype=bool)
            if lengths is not None:
                inside &= ends < lengths[self.runs][:, None]
            if spans is not None:
                recorded = self.trajectories.steps
                inside &= recorded[self.cut.first] >= spans[:, :1]
                inside &= recorded[ends] <= spans[:, 1:]
            if not inside.any():
                raise InputError(
                    "windows: no run is long enough; use a smaller length, stride or target_steps."
                )
            return np.flatnonzero(inside)
        if starts.ndim != 2 or starts.shape[1] != 2:
            raise InputError(f"starts: expected pairs (run, step), found shape {starts.shape}.")
        first = {int(s): i for i, s in enumerate(self.trajectories.steps[self.cut.first])}
        place = {int(run): i for i, run in enumerate(self.runs)}
        numbers = []
        for run, step in starts.tolist():
            at = first.get(step)
            if run not in place or at is None:
                raise InputError(f"starts: no window starts at step {step} of run {run}.")
            if lengths is not None and ends[at] >= lengths[run]:
                raise InputError(
                    f"starts: the window at step {step} of run {run} does not end in it; the run "
                    f"has {lengths[run]} frames."
                )
            numbers.append(place[run] * count + at)
        return np.array(numbers)

    def _keep_populated(self, wanted: bool) -> None:
        """Drop windows with too few nodes or no target; an error, if they were `wanted`."""
        W, L, t = len(self), self.length, self.trajectories
        counts, aimed = np.empty(W, dtype=np.int64), np.empty(W, dtype=bool)
        at_once = max(1, _LOOKED_AT // t.x.shape[2])
        for start in range(0, W, at_once):
            here = slice(start, min(start + at_once, W))
            runs, frames = self.locate(np.arange(here.start, here.stop))
            chosen = chosen_nodes(t, runs, frames, L - 1, self.nodes)
            counts[here] = chosen.sum(1)
            there = np.zeros_like(chosen)
            for k in range(L, frames.shape[1]):
                there |= observed_again(t, runs, frames[:, L - 1], frames[:, k])
            aimed[here] = (chosen & there).any(1)
        kept = (counts >= self.min_nodes) & aimed
        if not kept.any() or (wanted and not kept.all()):
            where = "all" if self.nodes == "all" else "the last"
            raise InputError(
                f"windows: {'not every one' if kept.any() else 'none'} of {W} windows has "
                f"{amount(self.min_nodes, 'node')} observed in {where} of its frames and one at a "
                "target; use a smaller length, target_steps or min_nodes."
            )
        self.numbers = (np.arange(W) if self.numbers is None else self.numbers)[kept]
        self.node_counts = counts[kept]

    def __len__(self) -> int:
        return len(self.runs) * len(self.cut) if self.numbers is None else len(self.numbers)

    def __getitem__(
        self, index: SupportsIndex | slice | Sequence[int] | Tensor
    ) -> tuple[SpacetimeGraph, Forecast]:
        rows = rows_of(index, len(self))
        if self.ragged or not self.fits_in_memory:
            return self._read(rows)
        graph, target = self._loaded
        if isinstance(index, slice) and index.step in (None, 1):
            return graph[index], target[index]
        picked = torch.from_numpy(rows)
        return graph[picked], target[picked]

    @property
    def ragged(self) -> bool:
        """Whether windows differ in their number of nodes, so that batches are padded."""
        return self.trajectories.ids is not None

    def padding(self, batch_size: int) -> float:
        """The fraction of node places that are padding in training batches."""
        if not self.ragged:
            N = self.trajectories.x.shape[2]
            return 1 - float(self.node_counts.mean(dtype=float)) / N
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(self), generator=generator)
        order = of_like_size(order, self.node_counts, batch_size, generator)
        return share_of_padding(order, self.node_counts, batch_size)

    @property
    def fits_in_memory(self) -> bool:
        """Whether all windows are small enough to be kept in memory once read."""
        _, _, N, n = self.trajectories.x.shape
        N = int(self.node_counts.max()) if self.ragged else N
        pairs = sum(
            k == "charge" or len(a.shape) == 3 for k, a in self.trajectories.attributes.items()
        )
        lists = self.radius is not None or self.k is not None
        edges = N * max_neighbours(N, self.radius, self.k) * (pairs + lists)
        frames = self.length + len(self.target_steps)
        each = (frames * N * n * 2 + edges) * self.dtype.itemsize
        return len(self) * each <= _IN_MEMORY

    @cached_property
    def _loaded(self) -> tuple[SpacetimeGraph, Forecast]:
        """All windows, read in parts, so that memory never holds two copies."""
        count = len(self)
        if count <= _AT_ONCE or self.radius is not None:  # (lists as wide as the longest)
            return self._read(np.arange(count))
        few = self._read(np.arange(1))
        kept = few[0].empty(count), few[1].empty(count)
        for first in range(0, count, _AT_ONCE):
            rows = slice(first, min(first + _AT_ONCE, count))
            read = self._read(np.arange(rows.start, rows.stop))
            for room, part in zip(kept, read, strict=True):
                room.put(rows, part)
        return kept

    def sample(self, most: int) -> tuple[SpacetimeGraph, Forecast]:
        """At most `most` windows, evenly spread over all of them; they are not kept in memory."""
        if len(self) <= most:
            return self[:]
        return self._read(evenly_spaced_indices(len(self), most).numpy())

    def locate(
        self, index: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The run (b,) and the frames (b, L + T) of windows; the last T are the targets'.

        Args:
            index: which windows, (b,); None: all.
        """
        index = np.arange(len(self)) if index is None else index
        inner = index if self.numbers is None else self.numbers[index]
        return self.runs_of(index), self.cut.frames(inner % len(self.cut))

    def runs_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The run of each window, (b,)."""
        inner = index if self.numbers is None else self.numbers[index]
        return self.runs[inner // len(self.cut)]

    def ids_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nodes of windows in order, (b, N); -1: padding."""
        t, (runs, frames) = self.trajectories, self.locate(index)
        ids = np.arange(t.x.shape[2])
        if t.observed is None:
            return np.broadcast_to(ids, (len(runs), len(ids)))
        taken = chosen_nodes(t, runs, frames, self.length - 1, self.nodes)
        if t.ids is not None:
            slots, taken = in_first_places(taken)
            last = frames[:, self.length - 1 : self.length]
            ids = t.ids[places_of(runs, last, slots)][:, 0]
        return np.where(taken, ids, NOBODY)

    def spans(self) -> NDArray[np.int64]:
        """The first and the last frame that windows of each run touch, (R, 2); none: (T, -1)."""
        if self.numbers is None:
            return np.tile([self.cut.first[0], self.cut.ends[-1]], (len(self.runs), 1))
        runs, windows = np.divmod(self.numbers, len(self.cut))
        spans = np.tile([len(self.trajectories.steps), -1], (len(self.runs), 1))
        np.minimum.at(spans[:, 0], runs, self.cut.first[windows])
        np.maximum.at(spans[:, 1], runs, self.cut.ends[windows])
        return spans

    def last_in_each_run(self) -> NDArray[np.int64]:
        """The index of the last window of each run."""
        count = len(self.cut)
        if self.numbers is None:
            return np.arange(count - 1, len(self), count)
        _, place = np.unique(self.numbers[::-1] // count, return_index=True)
        return len(self) - 1 - place

    def _read(self, index: NDArray[np.int64]) -> tuple[SpacetimeGraph, Forecast]:
        """Read the windows at `index` from the trajectories."""
        t, L = self.trajectories, self.length
        runs, frames = self.locate(index)
        read = read_frames(t, runs, frames, self.origin, L - 1, self.nodes)
        x, v = read.x, read.v  # (b, L + T, N, n)
        if self.targets == "zero":
            x[:, L:], v[:, L:] = 0.0, 0.0
        target_x, target_v = x[:, L:], v[:, L:]
        if self.noise > 0:
            noise = self._noise(runs, t.steps[frames])  # (b, L + T, 2, N, n)
            if read.slots is not None:
                noise = np.take_along_axis(noise, read.slots[:, None, None, :, None], axis=3)
            if read.observed is not None:
                noise *= read.observed[:, :, None, :, None]
            x, v = x + noise[:, :, 0], v + noise[:, :, 1]
            if self.targets != "clean":
                target_x, target_v = x[:, L:], v[:, L:]
        times = t.times[frames]
        graph = as_graph(
            t,
            dataclasses.replace(read, x=x, v=v).first(L),
            times[:, L:] - times[:, L - 1 : L],
            self.dtype,
            self.radius,
            self.k,
        )
        target = Forecast(
            to_tensor(target_x, self.dtype),
            to_tensor(target_v, self.dtype),
            times=graph.horizon,
            mask=None if read.observed is None else torch.from_numpy(read.observed[:, L:]),
        )
        return graph, target

    def _noise(self, runs: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[Any]:
        """The noise of x and v at each step of each run: (b,) and (b, T) -> (b, T, 2, N, n).

        Keyed by run and step, so that an observation has the same noise in every window.
        """
        N, n = self.trajectories.x.shape[2:]
        streams = Streams(self.noise_seed)
        out = np.empty((*steps.shape, 2, N, n))
        for b, run in enumerate(runs):
            for k, step in enumerate(steps[b]):
                # A counter that the trajectories' draws do not use, in case the seeds are equal.
                out[b, k] = streams.at(run, (0, 0, step, 1)).standard_normal((2, N, n))
        return np.asarray(np.sqrt(self.noise) * out)

    def add_to(self, digest: Digest) -> None:
        """Add the data, and how they are cut, to a fingerprint."""
        digest.update(self.trajectories.fingerprint.encode())
        digest.update(repr((self.noise, self.noise_seed, self.targets, str(self.dtype))).encode())
        if self.radius is not None or self.k is not None:
            digest.update(repr((self.radius, self.k)).encode())
        if len(self.target_steps) > 1:
            digest.update(repr(self.target_steps).encode())
        if self.trajectories.observed is not None:
            digest.update(self.nodes.encode())
        digest.update(np.ascontiguousarray(self.runs).data)
        for start in range(0, len(self.cut), 100_000):
            digest.update(self.cut.frames(slice(start, start + 100_000)).data)
        if self.numbers is not None:
            digest.update(np.ascontiguousarray(self.numbers).data)

    def without_noise(self) -> Windows:
        """The same windows without noise."""
        if self.noise == 0:
            return self
        return self._with(noise=0.0)

    def with_origin(self, origin: NDArray[np.float64]) -> Windows:
        """The same windows with positions relative to another origin, (n,)."""
        return self if np.array_equal(origin, self.origin) else self._with(origin=origin)

    def for_model(self, model: Trained) -> Windows:
        """The same windows with the attributes and the origin that a model was trained with."""
        trajectories, origin = prepare_for(model, self.trajectories)
        if trajectories is self.trajectories:
            return self.with_origin(origin)
        return self._with(trajectories=trajectories, origin=origin)

    def _with(self, **changes: Any) -> Windows:
        changed = copy.copy(self)
        changed.__dict__.pop("_loaded", None)
        changed.__dict__.update(changes)
        return changed


def rows_of(index: Any, length: int) -> NDArray[np.int64]:
    """The rows from 0 to `length` - 1 that a NumPy index selects, without listing them all.

    Args:
        index: an integer, a slice, integers, or a mask (length,).
        length: the number of rows.
    """
    if isinstance(index, slice):
        return np.arange(*index.indices(length))
    picked = np.atleast_1d(np.asarray(index))
    if picked.dtype == bool and picked.shape == (length,):
        return np.flatnonzero(picked)
    if picked.dtype.kind not in "iu":
        raise IndexError(f"expected whole numbers or a mask of {length}, found {index!r:.60}.")
    outside = (picked < -length) | (picked >= length)
    if outside.any():
        raise IndexError(f"index {picked[outside][0]} is out of range: there are {length} windows.")
    rows = picked.astype(np.int64)
    return np.where(rows < 0, rows + length, rows)
