"""Build the graphs that models read from frames of trajectories."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en.data.differences import unwrap_paths
from spacetime_en.data.slots import NOBODY
from spacetime_en.data.trajectories import LazyArray, Trajectories
from spacetime_en.graph import SpacetimeGraph

Nodes = Literal["last", "all"]


@dataclass(frozen=True)
class Frames:
    """Frames of windows, with the nodes selected for each.

    Args:
        runs: of each window, (b,).
        frames: of each window, (b, K).
        x, v: positions, relative to an origin, and velocities, (b, K, N, n).
        observed: (b, K, N), False for nodes that are only padding; None: all were observed.
        slots: of the nodes in the trajectories, (b, N); None: all slots, in order.
    """

    runs: NDArray[np.int64]
    frames: NDArray[np.int64]
    x: NDArray[Any]
    v: NDArray[Any]
    observed: NDArray[np.bool_] | None
    slots: NDArray[np.int64] | None

    def first(self, count: int) -> Frames:
        """The first `count` frames of each window."""
        cut = {
            name: value[:, :count]
            for name in ("frames", "x", "v", "observed")
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **cut)

    def of(self, array: LazyArray) -> NDArray[Any]:
        """Read an array (R, T, N) at these frames and slots, (b, K, N); 0 if not observed."""
        values = array[places_of(self.runs, self.frames, self.slots)]
        return values if self.observed is None else np.where(self.observed, values, 0)


def read_frames(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    origin: NDArray[np.float64],
    last: int = -1,
    nodes: Nodes = "last",
) -> Frames:
    """Read windows with their nodes, which are moved to the first places if slots are reused.

    Args:
        trajectories: the data.
        runs: of the windows, (b,).
        frames: of the windows, (b, K).
        origin: positions are relative to it, (n,). In a box they are paths that are continuous
            from the first of these frames on.
        last: the column of `frames` with the last input frame.
        nodes: see :class:`~spacetime_en.data.Windows`.
    """
    t = trajectories
    if t.observed is None:
        return Frames(runs, frames, *states_at(t, runs, frames, origin), None, None)
    chosen = chosen_nodes(t, runs, frames, last, nodes)
    slots, taken = None, chosen
    if t.ids is not None:
        slots, taken = in_first_places(chosen)
    places = places_of(runs, frames, slots)
    observed = np.asarray(t.observed[places] & taken[:, None])
    if t.ids is not None:
        ids = t.ids[places]
        observed &= ids == ids[:, [last]]
    if t.box is None:
        x = t.x[places]
    else:
        each = zip(runs, frames, range(len(runs)), strict=True)
        x = np.stack(
            [_path(t, int(run), f, last, None if slots is None else slots[i]) for run, f, i in each]
        )
    there = observed[..., None]
    x, v = np.where(there, x - origin, 0.0), np.where(there, t.v[places], 0.0)
    return Frames(runs, frames, x, v, observed, slots)


def chosen_nodes(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    last: int,
    nodes: Nodes,
) -> NDArray[np.bool_]:
    """The slots of a window's nodes, (b, N), for trajectories with an observation mask."""
    chosen = observed_again(trajectories, runs, frames[:, last], frames[:, last])
    if nodes == "all":
        for k in range(frames.shape[1]):
            chosen &= observed_again(trajectories, runs, frames[:, last], frames[:, k])
    return chosen


def in_first_places(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The selected slots of each window in order, padded to the largest number.

    Args:
        chosen: (b, N).
    Returns: slots (b, M), and a mask that is False for padding (b, M).
    """
    counts = chosen.sum(1)
    slots = np.argsort(~chosen, axis=1, kind="stable")[:, : counts.max(initial=1)]
    return slots, np.arange(slots.shape[1]) < counts[:, None]


def observed_again(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    last: NDArray[np.int64],
    frame: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether the node in a slot at `last` (b,) was also observed at `frame` (b,), (b, N)."""
    assert trajectories.observed is not None
    there = np.array(trajectories.observed[runs, frame])
    if trajectories.ids is not None:
        there &= trajectories.ids[runs, frame] == trajectories.ids[runs, last]
    return there


def states_at(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    origin: NDArray[np.float64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read positions, relative to `origin` (n,), and velocities of `runs` (b,) at `frames` (b, K).

    In a box, positions are paths that are continuous from the first of these frames on.

    Returns: x and v of all slots, each (b, K, N, n).
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
    read: Frames,
    horizon: NDArray[np.float64],
    dtype: torch.dtype,
    radius: float | None = None,
    k: int | None = None,
) -> SpacetimeGraph:
    """Build a batch of graphs from frames, with the attributes of nodes and pairs.

    Args:
        trajectories: the source of the frames.
        read: the frames; differences of x replace a v that was not measured.
        horizon: times from the last frame to the targets, (b, T).
        dtype: of the tensors.
        radius, k: which nodes are neighbours, as in :class:`~spacetime_en.data.Windows`.
    """
    box = trajectories.box
    sparse = radius is not None or k is not None
    times = trajectories.times[read.frames]
    graph = SpacetimeGraph(
        to_tensor(read.x, dtype),
        to_tensor(read.v, dtype),
        box=None if box is None else to_tensor(np.asarray(box), dtype)[None],
        up=trajectories.meta.get("up"),
        times=to_tensor(times - times[:, :1], dtype),
        horizon=to_tensor(horizon, dtype),
        observed=None if read.observed is None else torch.from_numpy(read.observed),
        edge_attr=None if sparse else _edges(trajectories, read, dtype),
    )
    if sparse:
        from spacetime_en.neighbours import connect  # imports a compiler

        graph = connect(graph, radius=radius, k=k)
        graph = graph.replace(edge_attr=_edges(trajectories, read, dtype, graph.neighbours))
    if not trajectories.measured_velocities:
        graph = graph.replace(v=_differences(graph))
    return _with_features(graph, trajectories, read)


def _differences(graph: SpacetimeGraph) -> Tensor:
    """Velocities from this window's own frames only: any other frame may be a target."""
    if graph.observed is None:
        return SpacetimeGraph.from_positions(graph.x, times=graph.times).v
    v = torch.zeros_like(graph.x)
    twice = (graph.observed.sum(1) > 1).any(1)  # others just appeared, and are at rest
    if twice.any():
        part = graph[twice]
        known = {"times": part.times, "observed": part.observed}
        v[twice] = SpacetimeGraph.from_positions(part.x, **known).v
    return v


def places_of(
    runs: NDArray[np.int64], frames: NDArray[np.int64], slots: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], ...]:
    """An index into arrays (R, T, N, ...): runs (b,), frames (b, K) and slots (b, N), or all."""
    if slots is None:
        return np.broadcast_to(runs[:, None], frames.shape), frames
    shape = (*frames.shape, slots.shape[1])
    parts = runs[:, None, None], frames[:, :, None], slots[:, None, :]
    return tuple(np.broadcast_to(part, shape) for part in parts)


def _path(
    trajectories: Trajectories,
    run: int,
    frames: NDArray[np.int64],
    last: int = -1,
    slots: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Positions at `frames`, continuous from the first on, (K, N, n)."""
    between = np.arange(frames[0], frames[-1] + 1)
    runs = np.array([run])
    places = places_of(runs, between[None], None if slots is None else slots[None])
    path = trajectories.x[places][0]
    if trajectories.observed is not None:
        observed = trajectories.observed[places][0]
        if trajectories.ids is not None:
            ids = trajectories.ids[places][0]
            observed = observed & (ids == ids[frames[last] - frames[0]])
        path = np.take_along_axis(path, newest_or_first(observed)[..., None], axis=0)
    unwrapped = unwrap_paths(path, trajectories.box)
    return np.asarray(unwrapped[frames - frames[0]])


def newest_or_first(observed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The frame used for each frame: a node's newest observation, or its first, (K, N)."""
    frame = np.arange(len(observed))[:, None]
    newest = np.maximum.accumulate(np.where(observed, frame, NOBODY), axis=0)
    return np.where(newest < 0, observed.argmax(0), newest)


def _edges(
    trajectories: Trajectories, read: Frames, dtype: torch.dtype, neighbours: Tensor | None = None
) -> Tensor | None:
    """Edge attributes: products of charges, and the attributes of pairs.

    Returns: (b, N, K, e), or (b, L, N, K, e) if charges change between frames.
    """
    # (b, N, K), the nodes j; never an N x N array if neighbour lists are shorter.
    j = None if neighbours is None else neighbours[:, 0].clamp(min=0).cpu().numpy()
    edges = []
    for name, values in trajectories.attributes.items():
        if name == "charge":
            c = values[read.runs]
            c_j = c[:, None, :]
            c_j = c_j if j is None else np.take_along_axis(c_j, j, axis=2)
            edges.append(c[:, :, None] * c_j)
        elif len(values.shape) == 3:
            a = values[read.runs]
            edges.append(a if j is None else np.take_along_axis(a, j, axis=2))
    if "charge" in trajectories.frame_attributes:
        c = read.of(trajectories.frame_attributes["charge"])  # (b, L, N)
        if read.observed is not None:  # in gaps, a node keeps the charge that it had
            at = np.stack([newest_or_first(observed) for observed in read.observed])
            c = np.take_along_axis(c, at, axis=1)
        c_j = c[:, :, None, :]
        c_j = c_j if j is None else np.take_along_axis(c_j, j[:, None], axis=3)
        changing = c[..., None] * c_j  # (b, L, N, K)
        edges = [np.broadcast_to(a[:, None], changing.shape) for a in edges] + [changing]
    return to_tensor(np.stack(edges, axis=-1), dtype) if edges else None


def _with_features(
    graph: SpacetimeGraph, trajectories: Trajectories, read: Frames
) -> SpacetimeGraph:
    """Append node attributes to the speed."""
    attributes = [
        to_tensor(values[read.runs], graph.x.dtype)[:, None, :, None].expand(*graph.x.shape[:3], 1)
        for name, values in trajectories.attributes.items()
        if name != "charge" and len(values.shape) == 2
    ]
    attributes += [
        to_tensor(read.of(values), graph.x.dtype)[..., None]
        for name, values in trajectories.frame_attributes.items()
        if name != "charge"
    ]
    return (
        graph.replace(features=torch.cat([graph.h, *attributes], dim=-1)) if attributes else graph
    )


def attribute_names(trajectories: Trajectories) -> tuple[list[str], list[str]]:
    """The names of a graph's node features and of its edge attributes, in order.

    If nodes have attributes, their first feature is the speed.
    """
    constant, changing = trajectories.attributes, trajectories.frame_attributes
    nodes = [name for name, a in constant.items() if name != "charge" and len(a.shape) == 2]
    nodes += [name for name in changing if name != "charge"]
    pairs = [
        "charge_i charge_j" if name == "charge" else f"{name}_ij"
        for name, a in constant.items()
        if name == "charge" or len(a.shape) == 3
    ]
    pairs += ["charge_i charge_j"] if "charge" in changing else []
    return ["speed", *nodes] if nodes else [], pairs


def max_neighbours(nodes: int, radius: float | None, k: int | None) -> int:
    """The maximum number of neighbours of a node, to plan memory; for a radius, a guess."""
    if radius is None and k is None:
        return nodes
    return min(nodes, k or 64)


def to_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """Copy an array to a tensor."""
    return torch.from_numpy(np.array(array)).to(dtype)
