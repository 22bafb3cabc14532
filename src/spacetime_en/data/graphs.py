"""Build the graphs that models read from the frames of trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en.data.differences import unwrap
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.neighbours import connect


def states_at(
    trajectories: Trajectories,
    runs: NDArray[np.int64],
    frames: NDArray[np.int64],
    origin: NDArray[np.float64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read positions, relative to `origin` (n,), and velocities of `runs` (b,) at `frames` (b, K).

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
    """Build a batch of graphs from observed frames, with the attributes of nodes and pairs.

    Args:
        trajectories: from which the frames are.
        runs: the run of each window, (b,).
        x, v: the frames, (b, L, N, n); differences of x replace a v that was not measured.
        times: of the frames, (b, L).
        horizon: time from the last frame to the target, (b,).
        dtype: of the tensors.
        radius, k: which nodes are neighbours, as in :class:`~spacetime_en.data.Windows`.
    """
    box = trajectories.box
    sparse = radius is not None or k is not None
    graph = SpacetimeGraph(
        to_tensor(x, dtype),
        to_tensor(v, dtype),
        box=None if box is None else to_tensor(np.asarray(box), dtype)[None],
        up=trajectories.meta.get("up"),
        times=to_tensor(times - times[:, :1], dtype),
        horizon=to_tensor(horizon, dtype),
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
    """Edge attributes: products of charges, and the attributes of pairs, (b, N, K, e)."""
    # (b, N, K), the nodes j; never N x N numbers where lists are shorter.
    j = None if neighbours is None else neighbours[:, 0].clamp(min=0).cpu().numpy()
    edges = []
    for name, values in trajectories.attributes.items():
        if name == "charge":
            c = values[runs]
            c_j = c[:, None, :]
            c_j = c_j if j is None else np.take_along_axis(c_j, j, axis=2)
            edges.append(c[:, :, None] * c_j)
        elif len(values.shape) == 3:
            a = values[runs]
            edges.append(a if j is None else np.take_along_axis(a, j, axis=2))
    return to_tensor(np.stack(edges, axis=-1), dtype) if edges else None


def _with_features(
    graph: SpacetimeGraph, trajectories: Trajectories, runs: NDArray[np.int64]
) -> SpacetimeGraph:
    """Append the attributes of nodes to their speed."""
    attributes = [
        to_tensor(values[runs], graph.x.dtype)[:, None, :, None].expand(*graph.x.shape[:3], 1)
        for name, values in trajectories.attributes.items()
        if name != "charge" and len(values.shape) == 2
    ]
    return (
        graph.replace(features=torch.cat([graph.h, *attributes], dim=-1)) if attributes else graph
    )


def max_neighbours(nodes: int, radius: float | None, k: int | None) -> int:
    """How many neighbours a node has at most, to plan memory; for a radius, a guess."""
    if radius is None and k is None:
        return nodes
    return min(nodes, k or 64)


def to_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """Copy an array to a tensor."""
    return torch.from_numpy(np.array(array)).to(dtype)
