"""Windows as rows, one for each node: its deviation from a straight line, and its causes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.collation import collate
from spacetime_en.data.given import GivenWindows
from spacetime_en.data.task import Task
from spacetime_en.geometry import minimum_image, pairwise_differences
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.intervals import Groups

Array = NDArray[np.float64]
MOST_ROWS = 6_000
ENOUGH_GROUPS = 40  # fewer recordings are cut into blocks
MOST_CHANNELS = 3  # attributes of pairs, or of nodes, that weight sums over neighbours
PAIRS_AT_ONCE = 1 << 22  # vectors between nodes that are examined at a time
VELOCITY = 0  # the index of the velocity among the vectors of a row
OF_EACH_ROW = (
    *("residual", "vectors", "scalars", "position"),
    *("time", "node", "window", "group"),
)
LENGTHS = 5  # at most this many of them scale with the window; sums over pairs need not


@dataclass(frozen=True)
class Rows:
    """R nodes of windows, with what a forecaster may know about them.

    Args:
        residual: target minus straight line, y - x - h v, (R, n), h the time to the target.
        vectors: vectors that move with the node and rotate with the window, as lengths, (R, K, n):
            h v first, then where it was before, then its position and motion among the other nodes.
        relative: which of the vectors no boost changes, (K,).
        near: which of them are sums over the other nodes that weight the nearest most, (K,).
        scalars: attributes of the nodes, (R, S).
        position: in the laboratory, at the last frame, (R, n).
        time: of the last frame, counted in steps, (R,).
        node: which node of its window, (R,); nodes that come and go: -1.
        window: which window, (R,).
        group: of windows that may depend on each other, (R,).
        windows: number of windows.
        groups: what the groups are.
    """

    residual: Array
    vectors: Array
    relative: NDArray[np.bool_]
    near: NDArray[np.bool_]
    scalars: Array
    position: Array
    time: Array
    node: NDArray[np.int64]
    window: NDArray[np.int64]
    group: NDArray[np.int64]
    windows: int
    groups: Groups

    @property
    def dims(self) -> int:
        """n, the dimensions of space."""
        return int(self.residual.shape[1])

    def __len__(self) -> int:
        return len(self.residual)

    def with_place(self, centre: Array) -> Rows:
        """The same rows with one more vector: the last position, from a centre, (n,) or (R, n).

        No boost changes it: it adds to velocities, and rotates paths about the last frame.
        """
        place = (self.position - centre)[:, None]
        vectors = np.concatenate([self.vectors, place], axis=1)
        relative, near = np.append(self.relative, True), np.append(self.near, False)
        return replace(self, vectors=vectors, relative=relative, near=near)


@dataclass(frozen=True)
class Sampled:
    """Windows of a task, spread evenly over its training and validation windows.

    Args:
        graph, target: the windows.
        groups: of the windows.
        steps: of their last frames, (W,).
        named: whether index i is the same node in every window.
        measured: whether velocities were measured, rather than taken from differences of frames.
    """

    graph: SpacetimeGraph
    target: Forecast
    groups: Groups
    steps: NDArray[np.int64]
    named: bool
    measured: bool

    def seen(self, observed: Tensor) -> Sampled:
        """With these nodes observed, (B, L, N), and without the windows that have none."""
        kept = observed.flatten(1).any(1)
        left, of_window = np.unique(self.groups.of_window[kept.numpy()], return_inverse=True)
        groups = replace(self.groups, of_window=of_window, count=len(left))
        graph = self.graph[kept].replace(observed=observed[kept])
        steps = self.steps[kept.numpy()]
        return replace(self, graph=graph, target=self.target[kept], groups=groups, steps=steps)


def sample(task: Task, most_rows: int = MOST_ROWS) -> Sampled:
    """Up to `most_rows` nodes in windows of a task; test windows are not read."""
    parts = [task.train, task.val]
    counts = np.concatenate([part.node_counts for part in parts])
    most = max(1, int(most_rows / counts.mean(dtype=float)))
    total = sum(map(len, parts))
    chosen = evenly_spaced_indices(total, most).numpy()
    first = len(task.train)
    read, runs, steps = [], [], []
    for number, (part, index) in enumerate(
        zip(parts, (chosen[chosen < first], chosen[chosen >= first] - first), strict=True)
    ):
        if len(index) == 0:
            continue
        read.append(part[index])
        run, frames = part.locate(index)
        # A user's own windows have separate runs in every split.
        runs.append(run + number * first if isinstance(part, GivenWindows) else run)
        steps.append(part.trajectories.steps[frames])
    all_steps = np.concatenate(steps)
    span = int(np.ptp(all_steps, axis=1).max()) + 1
    groups = Groups.of(np.concatenate(runs), all_steps[:, 0], span, ENOUGH_GROUPS)
    graph, target = read[0] if len(read) == 1 else collate(read)
    measured = task.train.trajectories.measured_velocities
    last = all_steps[:, task.train.length - 1]
    sampled = Sampled(graph, target, groups, last, not task.train.ragged, measured)
    if graph.observed is None or measured:
        return sampled
    twice = graph.observed.sum(1, keepdim=True) > 1  # one observation is too few for a difference
    return sampled.seen(graph.observed & twice)


def rows_of_windows(sampled: Sampled, unit: float) -> Rows:
    """The rows of all nodes that are observed in all frames and at the last target.

    Args:
        sampled: the windows.
        unit: the length at which sums over other nodes change their weight, see :func:`describe`.
    """
    graph, target = sampled.graph.to(torch.float64).unwrapped(), sampled.target.to(torch.float64)
    kept = _observed_throughout(graph)
    if target.mask is not None:
        kept = kept & target.mask[:, -1]
    if not kept.any():
        raise InputError("windows: no node is observed in all frames and at the last target.")
    vectors, relative, near = describe(graph, unit)
    scalars = _scalars(graph)
    horizon = graph.horizon[:, -1, None, None]
    residual = target.x[:, -1] - graph.x[:, -1] - horizon * graph.v[:, -1]  # (B, N, n)
    window, node = (t.numpy() for t in kept.nonzero(as_tuple=True))
    return Rows(
        residual[kept].numpy(),
        vectors[kept].numpy(),
        relative,
        near,
        scalars[kept].numpy(),
        graph.x[:, -1][kept].numpy(),
        sampled.steps[window].astype(float),
        node if sampled.named else np.full(len(node), -1),
        window,
        sampled.groups.of_window[window],
        len(graph),
        sampled.groups,
    )


def _observed_throughout(graph: SpacetimeGraph) -> Tensor:
    """Which nodes were observed in all frames, (B, N)."""
    if graph.observed is None:
        return torch.ones(graph.x.shape[0], graph.x.shape[2], dtype=torch.bool)
    return graph.observed.all(1)


def _observed_last(graph: SpacetimeGraph) -> Tensor:
    """Which nodes were observed in the last frame, (B, N): all that is read of neighbours."""
    if graph.observed is None:
        return _observed_throughout(graph)
    return graph.observed[:, -1]


def _scalars(graph: SpacetimeGraph) -> Tensor:
    """The attributes of nodes in the last frame, (B, N, S), without their speeds; a few only."""
    B, _, N, _ = graph.x.shape
    if graph.features is None or not 1 < graph.feature_width <= 1 + MOST_CHANNELS:
        return graph.x.new_zeros(B, N, 0)
    return graph.features[:, -1, :, 1:]  # (the first is the speed)


def describe(
    graph: SpacetimeGraph, unit: float
) -> tuple[Tensor, NDArray[np.bool_], NDArray[np.bool_]]:
    """The vectors of every node, (B, N, K, n), with masks (K,): unchanged by boosts; near.

    Times h, the time to the last target, so that all are lengths: its velocity; its distance from
    its present line at the first frame and in the middle; its velocity and position relative to
    the mean of the other nodes; and sums over the others of a_ij d_ij w(|d_ij|), d_ij = x_i - x_j,
    for a_ij = 1 and attributes of edges and nodes, and w = 1 / r^3 (softened), a Gaussian, and 1;
    with the Gaussian, also sums of a_ij h (v_i - v_j). Near: those with 1 / r^3.

    Args:
        graph: windows without jumps across the periodic boundary.
        unit: the width of the Gaussian; a tenth of it softens 1 / r^3.
    """
    x, v = graph.x, graph.v
    h = graph.horizon[:, -1, None, None]
    L, N = x.shape[1:3]
    vectors, relative, near = [h * v[:, -1]], [False], np.zeros(0, dtype=bool)
    for frame in sorted({0, (L - 1) // 2} - {L - 1}):
        ago = graph.since[:, frame, None, None].to(x)
        vectors.append(x[:, frame] - x[:, -1] + ago * v[:, -1])
        relative.append(True)
    if N > 1:
        there = _observed_last(graph).to(x).unsqueeze(-1)  # (B, N, 1)
        others = (there.sum(1, keepdim=True) - there).clamp(min=1)
        for t in (h * v[:, -1], x[:, -1]):
            t = t.masked_fill(there == 0, 0.0)
            mean = ((t * there).sum(1, keepdim=True) - t * there) / others
            # (A single node is its own mean.)
            alone = there.sum(1, keepdim=True) <= 1
            vectors.append(torch.where(alone, 0.0, t - mean))
            relative.append(True)
        sums = _over_pairs(graph, there[..., 0] > 0, unit)  # (B, N, C, n)
        vectors += list(sums.unbind(2))
        relative += [True] * sums.shape[2]
        # For each a_ij there are three sums of positions, and then one of velocities.
        near = np.arange(sums.shape[2]) < sums.shape[2] * 3 // 4
        near &= np.arange(sums.shape[2]) % 3 == 0
    near = np.pad(near, (len(vectors) - len(near), 0))
    return torch.stack(vectors, dim=2), np.array(relative), near


def typical_distance(graph: SpacetimeGraph) -> float:
    """The median distance of two nodes in the last frame; of single nodes, their displacement."""
    few = graph[evenly_spaced_indices(len(graph), 200)].to(torch.float64)
    there = _observed_throughout(few)
    pairs = there.unsqueeze(2) & there.unsqueeze(1)
    pairs = pairs & ~torch.eye(pairs.shape[1], dtype=torch.bool)
    r2 = pairwise_differences(few.x[:, -1], few.box).square().sum(-1)[pairs]
    if not (r2 > 0).any():
        way = (few.horizon[:, -1, None, None] * few.v[:, -1])[there]
        r2 = way.square().sum(-1)
    return max(float(r2.median().sqrt()), 1e-12)


def _over_pairs(graph: SpacetimeGraph, there: Tensor, unit: float) -> Tensor:
    """Sums over the other nodes of a_ij d_ij w(|d_ij|), last frame, (B, N, C, n)."""
    at_once = max(1, PAIRS_AT_ONCE // graph.x.shape[2] ** 2)
    parts = [
        _of_pairs(graph[first : first + at_once], there[first : first + at_once], unit)
        for first in range(0, len(graph), at_once)
    ]
    return torch.cat(parts)


def _of_pairs(graph: SpacetimeGraph, there: Tensor, unit: float) -> Tensor:
    x = graph.x[:, -1].masked_fill(~there.unsqueeze(-1), 0.0)
    B, N, _ = x.shape
    node = torch.arange(N).expand(B, N, N)
    node = node if graph.neighbours is None else graph.neighbours[:, -1].clamp(min=0)
    batch = torch.arange(B)[:, None, None]
    mask = graph.edge_mask[:, -1] & there.unsqueeze(-1) & there[batch, node]  # (B, N, K)
    d = minimum_image(x.unsqueeze(2) - x[batch, node], graph.box)  # (B, N, K, n)
    weights = [mask.to(x)]
    if graph.edge_attr is not None:
        a = graph.edge_attr[:, -1, ..., :MOST_CHANNELS]
        weights += list(a.masked_fill(~mask.unsqueeze(-1), 0.0).unbind(-1))
    weights += [a * mask for a in _scalars(graph)[batch, node].unbind(-1)]
    r2 = d.square().sum(-1) / unit**2
    shapes = ((r2 + 0.01).pow(-1.5), (-0.5 * r2).exp(), torch.ones_like(r2))
    sums = [((w * s).unsqueeze(-1) * d).sum(2) for w in weights for s in shapes]
    v = graph.v[:, -1].masked_fill(~there.unsqueeze(-1), 0.0)
    faster = graph.horizon[:, -1, None, None, None] * (v.unsqueeze(2) - v[batch, node])
    sums += [((w * shapes[1]).unsqueeze(-1) * faster).sum(2) for w in weights]
    return torch.stack(sums, dim=2)
