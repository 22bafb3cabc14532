"""Cut trajectories into windows: L frames in, the state H steps after the last of them out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en.data.facts import as_trained
from spacetime_en.data.streams import Streams
from spacetime_en.data.trajectories import Trajectories, unwrap
from spacetime_en.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.neighbours import connect

if TYPE_CHECKING:
    from spacetime_en.nn.forecaster import Forecaster

_IN_MEMORY = 1 << 30  # data sets up to a gigabyte are kept as tensors
Targets = Literal["observed", "clean", "zero"]


class Windows:
    """A data set of (SpacetimeGraph, Forecast) pairs; read on demand, kept if small.

    ``windows[i]`` is a pair with a batch of one, ``windows[indices]`` a pair with a whole batch.
    Charges become edge attributes c_i c_j, attributes of pairs edge attributes; any other
    attribute of a node joins its speed as a feature. Positions are seen from ``origin``, which is
    0 unless the data are far from it (:attr:`Trajectories.origin`); add it to what is forecast.

    Args:
        trajectories: where to cut.
        length: L, the number of frames.
        stride: steps between frames.
        horizon: H, steps from the last frame to the target.
        runs: the trajectories used, (R,); None: all.
        steps: (first, last) step that windows may touch, target included; None: all.
        starts: which windows, as pairs (run, step of the first frame), (W, 2); None: all that fit.
        noise: variance of Gaussian noise on every observed position and velocity.
        noise_seed: of the noise, apart from the seed of the trajectories.
        targets: ``"observed"``, with noise like all the rest, or ``"clean"``. ``"zero"`` is for
            the audit of published figures alone: what was never written, with noise if there is
            any.
        radius: neighbours are the nodes within it in the last frame; None: all, or
        k: so many of the nearest.
        dtype: of the tensors.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        length: int,
        stride: int,
        horizon: int,
        *,
        runs: NDArray[np.int64] | None = None,
        steps: tuple[int, int] | None = None,
        starts: NDArray[np.int64] | None = None,
        noise: float = 0.0,
        noise_seed: int = 0,
        targets: Targets = "observed",
        radius: float | None = None,
        k: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if targets not in get_args(Targets):
            raise InputError(
                f"targets: expected one of {', '.join(get_args(Targets))}, found {targets!r}."
            )
        for name, value in (("length", length), ("stride", stride), ("horizon", horizon)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name}: expected a positive whole number, found {value!r}.")
        if not noise >= 0:
            raise InputError(f"noise: expected a variance, found {noise!r}.")
        if length == 1 and not trajectories.measured_velocities:
            raise InputError(
                "length: the data have no velocities, and one frame has no differences; use at "
                "least two frames."
            )
        self.trajectories, self.origin = trajectories, trajectories.origin
        self.length, self.stride, self.horizon = length, stride, horizon
        self.runs = np.arange(len(trajectories)) if runs is None else runs
        self.noise, self.noise_seed, self.targets = noise, noise_seed, targets
        if radius is not None and k is not None:
            raise InputError("radius, k: neighbours are chosen by one of them; give only that.")
        self.radius, self.k = radius, k
        self.dtype = dtype
        # (S, L + 1): the frames of each window that fits, by the number of steps done.
        offsets = np.append(np.arange(length) * stride, (length - 1) * stride + horizon)
        have = trajectories.steps
        wanted = have[:, None] + offsets  # (T, L + 1), one row for every start
        place = np.searchsorted(have, wanted).clip(max=len(have) - 1)
        low, high = (-np.inf, np.inf) if steps is None else steps
        inside = (have >= low) & (wanted[:, -1] <= high)
        self.frames = place[inside & (have[place] == wanted).all(1)]
        if len(self.frames) == 0:
            raise InputError(
                f"windows: no window of {length} frames, {stride} steps apart, with a target "
                f"{horizon} steps later fits the {len(have)} frames at steps {have[0]} to "
                f"{have[-1]}; use fewer frames, another stride or a nearer horizon."
            )
        # Numbers of windows in the grid of all runs and starts; None: the whole grid.
        self.numbers = self._chosen(starts)

    def _chosen(self, starts: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """The windows that are wanted and, in runs of different lengths, inside their run."""
        lengths = self.trajectories.lengths
        count = len(self.frames)
        if starts is None:
            if lengths is None:
                return None
            inside = self.frames[None, :, -1] < lengths[self.runs][:, None]  # (R, S)
            if not inside.any():
                raise InputError("windows: no run is long enough; use fewer frames or a horizon.")
            return np.flatnonzero(inside)
        starts = np.asarray(starts)
        first = {int(s): i for i, s in enumerate(self.trajectories.steps[self.frames[:, 0]])}
        place = {int(run): i for i, run in enumerate(self.runs)}
        numbers = []
        for run, step in starts.reshape(-1, 2).tolist():
            at = first.get(step)
            if run not in place or at is None:
                raise InputError(f"starts: no window starts at step {step} of run {run}.")
            if lengths is not None and self.frames[at, -1] >= lengths[run]:
                raise InputError(
                    f"starts: the window at step {step} of run {run} does not end in it; the run "
                    f"has {lengths[run]} frames."
                )
            numbers.append(place[run] * count + at)
        return np.array(numbers)

    def __len__(self) -> int:
        return len(self.runs) * len(self.frames) if self.numbers is None else len(self.numbers)

    def __getitem__(
        self, index: SupportsIndex | slice | Sequence[int] | Tensor
    ) -> tuple[SpacetimeGraph, Forecast]:
        rows = _rows(index, len(self))
        if not self.is_kept:
            return self._read(rows)
        graph, target = self._kept
        if isinstance(index, slice) and index.step in (None, 1):
            return graph[index], target[index]
        picked = torch.from_numpy(rows)
        return graph[picked], target[picked]

    @property
    def is_kept(self) -> bool:
        """Whether the windows are small enough to be kept in memory once they are read."""
        _, _, N, n = self.trajectories.x.shape
        pairs = sum(
            k == "charge" or len(a.shape) == 3 for k, a in self.trajectories.attributes.items()
        )
        complete = self.radius is None and self.k is None
        K = N if complete else min(N, self.k or 64)  # (how many are within the radius, who knows)
        edges = N * K * (pairs if complete else pairs + 1)
        return len(self) * ((self.length + 1) * N * n * 2 + edges) * 8 <= _IN_MEMORY

    @cached_property
    def _kept(self) -> tuple[SpacetimeGraph, Forecast]:
        return self._read(np.arange(len(self)))

    def places(
        self, index: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The trajectory (b,) and the frames (b, L + 1) of windows; the last is the target's.

        Args:
            index: which windows, (b,); None: all.
        """
        index = np.arange(len(self)) if index is None else index
        index = index if self.numbers is None else self.numbers[index]
        return self.runs[index // len(self.frames)], self.frames[index % len(self.frames)]

    def last_of_runs(self) -> NDArray[np.int64]:
        """The number of the last window of each run."""
        count = len(self.frames)
        if self.numbers is None:
            return np.arange(count - 1, len(self), count)
        _, place = np.unique(self.numbers[::-1] // count, return_index=True)
        return len(self) - 1 - place

    def _read(self, index: NDArray[np.int64]) -> tuple[SpacetimeGraph, Forecast]:
        """Read the windows at `index` from the trajectories."""
        t = self.trajectories
        runs, frames = self.places(index)
        x, v = states_at(t, runs, frames, self.origin)  # (b, L + 1, N, n)
        if self.targets == "zero":
            x[:, -1], v[:, -1] = 0.0, 0.0
        target_x, target_v = x[:, -1], v[:, -1]
        if self.noise > 0:
            noise = self._noise(runs, t.steps[frames])
            x, v = x + noise[:, :, 0], v + noise[:, :, 1]
            if self.targets != "clean":
                target_x, target_v = x[:, -1], v[:, -1]
        times = t.times[frames]
        graph = as_graph(
            t,
            runs,
            x[:, :-1],
            v[:, :-1],
            times[:, :-1],
            times[:, -1] - times[:, -2],
            self.dtype,
            self.radius,
            self.k,
        )
        return graph, Forecast(_tensor(target_x, self.dtype), _tensor(target_v, self.dtype))

    def _noise(self, runs: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[Any]:
        """The noise of x and v at each step of each run: (b,) and (b, T) -> (b, T, 2, N, n).

        Keyed by run and step, so that an observation has the same noise in every window.
        """
        N, n = self.trajectories.x.shape[2:]
        streams = Streams(self.noise_seed)
        out = np.empty((*steps.shape, 2, N, n))
        for b, run in enumerate(runs):
            for k, step in enumerate(steps[b]):
                # Another counter than the trajectories' own draws, should the seeds be equal.
                out[b, k] = streams.at(run, (0, 0, step, 1)).standard_normal((2, N, n))
        return np.asarray(np.sqrt(self.noise) * out)

    def without_noise(self) -> Windows:
        """The same windows of the trajectories themselves."""
        if self.noise == 0:
            return self
        return self._with(noise=0.0)

    def seen_from(self, origin: NDArray[np.float64]) -> Windows:
        """The same windows with another point as 0, (n,)."""
        return self if np.array_equal(origin, self.origin) else self._with(origin=origin)

    def seen_by(self, model: Forecaster) -> Windows:
        """The same windows as a model knows such data; refused if it does not."""
        trajectories, origin = as_trained(model, self.trajectories)
        if trajectories is self.trajectories:
            return self.seen_from(origin)
        return self._with(trajectories=trajectories, origin=origin)

    def _with(self, **changes: Any) -> Windows:
        made = copy.copy(self)
        made.__dict__.pop("_kept", None)
        made.__dict__.update(changes)
        return made


# --- what a model sees of trajectories, with a target or without ----------------------------------


def states_at(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    origin: NDArray[np.float64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions, seen from `origin` (n,), and velocities of `runs` (b,) at `frames` (b, K).

    In a box, positions are paths that are continuous from the first of the frames on.

    Returns: x and v, each (b, K, N, n).
    """
    rows = np.broadcast_to(runs[:, None], frames.shape)
    if trajectories.box is None:
        x = trajectories.x[rows, frames]
    else:
        pairs = zip(runs, frames, strict=True)
        x = np.stack([_path(trajectories, int(run), f) for run, f in pairs])
    return x - origin, trajectories.v[rows, frames]


def as_graph(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    x: NDArray[Any],
    v: NDArray[Any],
    times: NDArray[np.float64],
    horizon: NDArray[np.float64],
    dtype: torch.dtype,
    radius: float | None = None,
    k: int | None = None,
) -> SpacetimeGraph:
    """Observed frames as a batch of graphs, with what is known of their nodes and pairs.

    Args:
        trajectories: where the frames are from.
        runs: of which run each window is, (b,).
        x, v: the frames, (b, L, N, n); differences of x replace a v that was not measured.
        times: of the frames, (b, L).
        horizon: time from the last frame to the target, (b,).
        dtype: of the tensors.
        radius, k: which nodes are neighbours, as in :class:`Windows`.
    """
    box = trajectories.box
    sparse = radius is not None or k is not None
    graph = SpacetimeGraph(
        _tensor(x, dtype),
        _tensor(v, dtype),
        box=None if box is None else _tensor(np.asarray(box), dtype)[None],
        up=trajectories.meta.get("up"),
        times=_tensor(times - times[:, :1], dtype),
        horizon=_tensor(horizon, dtype),
        edge_attr=None if sparse else _edges(trajectories, runs, dtype),
    )
    if sparse:
        graph = connect(graph, radius=radius, k=k)
        graph = graph.replace(edge_attr=_edges(trajectories, runs, dtype, graph.neighbours))
    if not trajectories.measured_velocities:
        # Differences of this window's own frames: any other frame may be the target.
        graph = graph.replace(v=SpacetimeGraph.from_positions(graph.x, times=graph.times).v)
    return _with_features(graph, trajectories, runs)


def _path(trajectories: Trajectories, run: int, frames: NDArray[np.int64]) -> NDArray[Any]:
    """Positions at `frames`, continuous from the first on, (K, N, n)."""
    between = np.arange(frames[0], frames[-1] + 1)
    path = trajectories.x[np.full(len(between), run), between]
    unwrapped = unwrap(path, trajectories.box)
    return np.asarray(unwrapped[frames - frames[0]])


def _edges(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    dtype: torch.dtype,
    neighbours: Tensor | None = None,
) -> Tensor | None:
    """Edge attributes: products of charges, and whatever is known of pairs, (b, N, K, e)."""
    # (b, N, K), the nodes j; never N x N numbers where lists are shorter.
    j = None if neighbours is None else neighbours[:, 0].clamp(min=0).cpu().numpy()
    edges = []
    for name, stacked in trajectories.attributes.items():
        if name == "charge":
            c = stacked[runs]
            c_j = c[:, None, :]
            c_j = c_j if j is None else np.take_along_axis(c_j, j, axis=2)
            edges.append(c[:, :, None] * c_j)
        elif len(stacked.shape) == 3:
            a = stacked[runs]
            edges.append(a if j is None else np.take_along_axis(a, j, axis=2))
    return _tensor(np.stack(edges, axis=-1), dtype) if edges else None


def _with_features(
    graph: SpacetimeGraph, trajectories: Trajectories, runs: NDArray[np.int64]
) -> SpacetimeGraph:
    """Join what is known of nodes to their speed."""
    known = [
        _tensor(stacked[runs], graph.x.dtype)[:, None, :, None].expand(*graph.x.shape[:3], 1)
        for name, stacked in trajectories.attributes.items()
        if name != "charge" and len(stacked.shape) == 2
    ]
    return graph.replace(features=torch.cat([graph.h, *known], dim=-1)) if known else graph


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.array(array)).to(dtype)


def _rows(index: Any, length: int) -> NDArray[np.int64]:
    """The places from 0 to `length` - 1 that an index picks, as NumPy would, without listing all.

    Args:
        index: a whole number, a slice, whole numbers, or a mask (length,).
        length: how many there are.
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
