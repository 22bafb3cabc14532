"""Neighbour lists by radius or by count, in open space or a periodic box.

Nodes are sorted into grid cells no smaller than the radius, so that only the 3^n cells around a
node are searched: at constant density the cost is linear in the number of nodes.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveFloat, PositiveInt, checked
from spacetime_en._util.tensors import as_tensor
from spacetime_en.graph import SpacetimeGraph


@checked
def radius_neighbours(
    x: Tensor,
    radius: PositiveFloat,
    *,
    box: Tensor | None = None,
    present: Tensor | None = None,
    most: PositiveInt | None = None,
) -> Tensor:
    """The other nodes within `radius` of every node, nearest first.

    Args:
        x: positions, (..., N, n).
        radius: the cutoff; in a box, at most half its smallest height.
        box: edge lengths (n,) or cell vectors as rows, (n, n) or (B, n, n) with B the first axis
            of x; None: open space.
        present: (..., N) as x, True where the node exists; None: all do.
        most: keep at most this many, the nearest; None: all.
    Returns: (..., N, K) for ``SpacetimeGraph(neighbours=...)``; -1 fills unused places.
    """
    clouds = _Clouds(x, box, present)
    if clouds.reach < radius * (1 - 1e-12):
        raise InputError(
            f"radius: in a box it is at most half the smallest height, {clouds.reach:g}, or two "
            f"images of a node could be neighbours; found {radius:g}."
        )
    K = int(clouds.counts(radius).max(initial=0))
    return clouds.lists(radius, K if most is None else min(K, most))


@checked
def nearest_neighbours(
    x: Tensor, k: PositiveInt, *, box: Tensor | None = None, present: Tensor | None = None
) -> Tensor:
    """The k nearest other nodes of every node (fewer if there are not as many), nearest first.

    Args:
        x, box, present: as in :func:`radius_neighbours`.
        k: how many. In a box each node counts once, by its nearest image (which, in a skewed cell,
            is only certain up to half its smallest height).
    Returns: (..., N, k); -1 fills unused places.
    """
    clouds = _Clouds(x, box, present)
    wanted = np.minimum(k, clouds.exists.sum(1) - 1)[:, None]
    radius = clouds.typical_distance * k ** (1 / clouds.n)
    while (np.where(clouds.exists, clouds.counts(radius), k) < wanted).any():
        radius *= 1.5
    return clouds.lists(radius, k)


@checked
def connect(
    graph: SpacetimeGraph,
    *,
    radius: PositiveFloat | None = None,
    k: PositiveInt | None = None,
    per_frame: bool = False,
) -> SpacetimeGraph:
    """The graph with neighbour lists instead of all pairs.

    Args:
        graph: a complete graph, whose edge attributes are kept for the remaining edges.
        radius: neighbours are all nodes within this distance, or
        k: the k nearest nodes.
        per_frame: one list per frame; otherwise all frames share that of the last observed one.
    """
    if graph.neighbours is not None:
        raise InputError("graph: has neighbours already; connect a complete graph.")
    if (radius is None) == (k is None):
        raise InputError("connect: give either a radius or k.")
    B, _, N, _ = graph.x.shape
    if per_frame:
        x, mask = graph.x, graph.observed
    else:
        x, mask = graph.latest().x[:, 0], graph.present
    x = x if mask is None else x.masked_fill(~mask[..., None], 0)
    if radius is not None:
        lists = radius_neighbours(x, radius, box=graph.box, present=mask)
    else:
        assert k is not None
        # (No more places than there are other nodes: each costs time and memory.)
        lists = nearest_neighbours(x, min(k, max(1, N - 1)), box=graph.box, present=mask)
    lists = lists if per_frame else lists[:, None]
    if lists.shape[-1] == 0:
        lists = lists.new_full((*lists.shape[:-1], 1), -1)
    changed = {"neighbours": lists}
    if graph.edge_attr is not None:
        a, index = graph.edge_attr, lists.clamp(min=0)
        frames = max(a.shape[1], index.shape[1])
        a = a.expand(B, frames, N, N, -1)
        index = index.expand(B, frames, N, -1)[..., None].expand(-1, -1, -1, -1, a.shape[-1])
        changed["edge_attr"] = a.gather(3, index)
    return graph.replace(**changed)


class _Clouds:
    """Point clouds as arrays, (F, N, n), each with its cell.

    Args:
        x, box, present: as in :func:`radius_neighbours`.
    """

    def __init__(self, x: Tensor, box: Tensor | None, present: Tensor | None) -> None:
        x = as_tensor("x", x)
        if x.ndim < 2 or 0 in x.shape:
            raise InputError(f"x: expected a shape (..., N, n), found {tuple(x.shape)}.")
        *leading, N, n = x.shape
        self.leading, self.N, self.n, self.device = leading, N, n, x.device
        self.x = np.ascontiguousarray(x.detach().cpu().double().numpy().reshape(-1, N, n))
        F = len(self.x)
        self.exists = np.ones((F, N), dtype=np.bool_)
        if present is not None:
            mask = as_tensor("present", present)
            fits = mask.ndim > 0 and all(
                have in (1, want)
                for have, want in zip(mask.shape[::-1], (N, *leading[::-1]), strict=False)
            )
            if mask.dtype != torch.bool or not fits or mask.ndim > x.ndim - 1:
                raise InputError(
                    f"present: expected a boolean tensor of shape {(*leading, N)}, found "
                    f"{mask.dtype} of shape {tuple(mask.shape)}."
                )
            self.exists = mask.expand(*leading, N).reshape(F, N).cpu().numpy().copy()
        if not np.isfinite(self.x[self.exists]).all():
            raise InputError("x: NaN or infinite positions have no neighbours; mask them.")
        self.cells = np.zeros((0, n, n))
        self.reach = math.inf
        if box is not None:
            cell = as_tensor("box", box).detach().cpu().double()
            cell = torch.diag(cell) if cell.ndim == 1 else cell
            if cell.shape[-2:] != (n, n) or (cell.ndim == 3 and (not leading or F % len(cell))):
                raise InputError(
                    f"box: expected edge lengths ({n},) or cell vectors ({n}, {n}), one for each "
                    f"graph or one for all, found {tuple(box.shape)}."
                )
            if not (cell.isfinite().all() and (torch.linalg.det(cell).abs() > 0).all()):
                raise InputError("box: expected a cell with a volume, found one without.")
            if cell.ndim == 3:  # one per graph, shared by all its frames
                cell = cell.repeat_interleave(F // len(cell), dim=0)
            self.cells = np.ascontiguousarray(cell.expand(F, n, n).numpy())
            heights = 1 / np.linalg.norm(np.linalg.inv(self.cells), axis=1)  # (F, n)
            self.reach = float(heights.min()) / 2

    @property
    def typical_distance(self) -> float:
        """The side of a cube that holds one node on average (arbitrary if all nodes coincide)."""
        spreads = [
            np.ptp(x[e], axis=0).max() for x, e in zip(self.x, self.exists, strict=True) if e.any()
        ]
        return float(max(spreads, default=1.0) or 1.0) / float(self.N ** (1 / self.n))

    def counts(self, radius: float) -> NDArray[np.int64]:
        """The number of other nodes within `radius` of each node, (F, N)."""
        out = np.zeros((len(self.x), self.N, 0), dtype=np.int64)
        counts: NDArray[np.int64] = _search(self.x, self.exists, self.cells, radius, out)
        return counts

    def lists(self, radius: float, K: int) -> Tensor:
        """The K nearest within `radius`, (..., N, K)."""
        out = np.full((len(self.x), self.N, K), -1, dtype=np.int64)
        if K:
            _search(self.x, self.exists, self.cells, radius, out)
        return torch.from_numpy(out.reshape(*self.leading, self.N, K)).to(self.device)


@numba.njit(cache=True)
def _search(x: Any, exists: Any, cells: Any, radius: float, out: Any) -> Any:
    """Fill `out` (F, N, K) with the nearest nodes within `radius`; return their numbers, (F, N)."""
    F, N, n = x.shape
    K = out.shape[2]
    periodic = len(cells) > 0
    counts = np.zeros((F, N), dtype=np.int64)
    around = 3**n
    for f in range(F):
        # Coordinates in which a grid cell is a unit cube.
        size = np.ones(n, dtype=np.int64)
        place = np.empty((N, n))
        turns = np.zeros((N, n))  # the image of the box that a node is in
        cell = cells[f] if periodic else np.eye(n)
        inverse = np.linalg.inv(cell)
        if periodic:
            for d in range(n):
                height = 1 / math.sqrt((inverse[:, d] ** 2).sum())
                size[d] = max(1, min(int(height / radius), int(N ** (1 / n)) + 1))
            for i in range(N):
                for d in range(n):
                    u = 0.0
                    for e in range(n):
                        u += x[f, i, e] * inverse[e, d]
                    turns[i, d] = math.floor(u)
                    place[i, d] = (u - turns[i, d]) * size[d]
        else:
            for d in range(n):
                low, high = np.inf, -np.inf
                for i in range(N):
                    if exists[f, i]:
                        low, high = min(low, x[f, i, d]), max(high, x[f, i, d])
                extent = max(high - low, 0.0)
                size[d] = max(1, min(int(extent / radius), int(N ** (1 / n)) + 1))
                scale = size[d] / extent if extent > 0 else 0.0
                for i in range(N):
                    place[i, d] = (x[f, i, d] - low) * scale if exists[f, i] else 0.0
        # Nodes sorted by cell: start[c] to start[c + 1] are those of cell c.
        total = size.prod()
        cell_of = np.empty(N, dtype=np.int64)
        start = np.zeros(total + 1, dtype=np.int64)
        for i in range(N):
            c = 0
            for d in range(n):
                c = c * size[d] + min(max(int(place[i, d]), 0), size[d] - 1)
            cell_of[i] = c if exists[f, i] else -1
            if cell_of[i] >= 0:
                start[c + 1] += 1
        for c in range(total):
            start[c + 1] += start[c]
        members = np.empty(start[total], dtype=np.int64)
        filled = start[:-1].copy()
        for i in range(N):
            if cell_of[i] >= 0:
                members[filled[cell_of[i]]] = i
                filled[cell_of[i]] += 1
        distance, apart = np.empty(K), np.empty(n)
        images, crossed = np.zeros(n), np.zeros(n)
        narrow = periodic and size.min() < 3  # cells do not determine the image
        here = np.empty(n, dtype=np.int64)
        for i in range(N):
            if cell_of[i] < 0:
                continue
            c = cell_of[i]
            for d in range(n - 1, -1, -1):
                here[d] = c % size[d]
                c //= size[d]
            kept = 0
            for step in range(around):
                code, other, valid = step, 0, True
                for d in range(n):
                    shift = code % 3 - 1
                    code //= 3
                    at = here[d] + shift
                    if periodic:
                        # With one or two cells, left and right are the same cell.
                        if (size[d] == 1 and shift != 0) or (size[d] == 2 and shift < 0):
                            valid = False
                        crossed[d] = math.floor(at / size[d])
                        at %= size[d]
                    elif at < 0 or at >= size[d]:
                        valid = False
                    if not valid:
                        break
                    other = other * size[d] + at
                if not valid:
                    continue
                for m in range(start[other], start[other + 1]):
                    j = members[m]
                    if j == i:
                        continue
                    for d in range(n):
                        apart[d] = x[f, i, d] - x[f, j, d]
                    if periodic:  # the nearest image of j
                        away = False
                        for d in range(n):
                            if narrow:
                                u = 0.0
                                for e in range(n):
                                    u += apart[e] * inverse[e, d]
                                images[d] = np.rint(u)
                            else:
                                images[d] = turns[i, d] - turns[j, d] + crossed[d]
                            away |= images[d] != 0
                        if away:
                            for d in range(n):
                                for e in range(n):
                                    apart[d] -= images[e] * cell[e, d]
                    square = 0.0
                    for d in range(n):
                        square += apart[d] * apart[d]
                    if square > radius * radius:
                        continue
                    counts[f, i] += 1
                    if K == 0:
                        continue
                    # Insert by distance, then by index.
                    p = min(kept, K)
                    while p > 0 and (
                        distance[p - 1] > square
                        or (distance[p - 1] == square and out[f, i, p - 1] > j)
                    ):
                        if p < K:
                            distance[p] = distance[p - 1]
                            out[f, i, p] = out[f, i, p - 1]
                        p -= 1
                    if p < K:
                        distance[p] = square
                        out[f, i, p] = j
                        kept = min(kept + 1, K)
    return counts
