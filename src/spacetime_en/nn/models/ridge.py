"""Equivariant ridge regression, solved in closed form: the baseline to try first.

The residual of a node from the straight line is a weighted sum of vectors that rotate with the data
and are invariant to translations: past differences x(last) - x(t), offsets from the centroid, and
the last velocities times the time to the target. The weights are scalars, so the forecast is
equivariant whatever their values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, PositiveInt
from spacetime_en.geometry import FULL_SYMMETRY, NAMED_NODES, Symmetries, norm
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.forecaster import Examples
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.models.regression import Regression, Residuals, Start, best
from spacetime_en.nn.requirements import (
    check_last_frame,
    check_length,
    check_no_box,
    check_nodes,
    check_widths,
)
from spacetime_en.nn.state import State, Units

# Penalties relative to the mean square of a vector: from almost none to almost complete shrinkage.
RIDGE_PENALTIES = tuple(10.0 ** (k / 2) for k in range(-20, 5))
# The largest norm of an output's weights. They multiply rounding errors, too: with larger ones the
# forecast would not be equivariant in single precision.
MOST_WEIGHT = 100.0
MAX_VECTORS = 8_000  # beyond, the normal equations take gigabytes


class _Ridge(Regression):
    """The common base of both forms."""

    position: nn.Parameter  # (A, T outputs)
    velocity: nn.Parameter

    def vectors(self, start: Start) -> Tensor:
        """The vectors of the regression: (B, N or 1, A, n)."""
        raise NotImplementedError

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """The weighted sums of vectors, (B, T, N, n)."""
        raise NotImplementedError

    def rows(self, vectors: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """F and Y of F w = Y, from vectors and the residuals (B, N, n) to fit.

        Args:
            mask: which residuals count, (B, N).
        """
        raise NotImplementedError

    def residual(self, start: Start) -> Residuals:
        vectors = self.vectors(start)
        return Residuals(*(self.weighted(vectors, w) for w in (self.position, self.velocity)))

    @torch.no_grad()
    def solve(self, train: Examples, val: Examples) -> float:
        """Fit the weights to `train`, with the penalties that have the lowest errors on `val`."""
        errors, counts = [], []
        both = zip(self._equations(train), self._equations(val), strict=True)
        for t, (fit, check) in enumerate(both):
            if fit.count == 0 or check.count == 0:
                continue  # nothing to fit or to validate on: the straight line
            solutions = [fit.solution(p) for p in RIDGE_PENALTIES]  # (A, 2 outputs) each
            solutions.append(torch.zeros_like(solutions[0]))  # the straight line
            judged = [(check.errors(w).chunk(2), w.chunk(2, dim=1)) for w in solutions]
            for i, weights in enumerate((self.position, self.velocity)):
                found = [(float(e[i].mean()), w[i]) for e, w in judged]
                small = [(e, w) for e, w in found if w.norm(dim=0).max() <= MOST_WEIGHT]
                error, w = best(small)
                outputs = w.shape[1]
                weights[:, t * outputs : (t + 1) * outputs] = w
                if i == 0:
                    errors.append(error)
                    counts.append(check.count)
        if not errors:
            raise InputError("windows: no target of a validation window counts; give more data.")
        return sum(e * c for e, c in zip(errors, counts, strict=True)) / sum(counts)

    def _equations(self, examples: Examples) -> list[_NormalEquations]:
        """The normal equations of each target time, summed over all examples."""
        equations = [_NormalEquations() for _ in range(self.settings["targets"])]
        for start, residuals, mask in self.starts(examples):
            vectors = self.vectors(start)
            ff = None
            for t, equation in enumerate(equations):
                counts = None if mask is None else mask[:, t]
                f, x = self.rows(vectors, residuals.x[:, t], counts)
                _, v = self.rows(vectors, residuals.v[:, t], counts)
                if ff is None or mask is not None:  # (without a mask, all times share it)
                    ff = f.mT @ f
                equation.add(ff, f, torch.cat([x, v], dim=1))
        return equations


class Ridge(_Ridge):
    """Ridge regression for nodes with an identity, such as the joints of a body.

    Every node has its own weights for the vectors of all nodes.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
        targets: number T of target times, each with its own weights.
    """

    def __init__(
        self, nodes: PositiveInt, frames: PositiveInt = 10, targets: PositiveInt = 1
    ) -> None:
        super().__init__()
        count = (frames + 1) * nodes
        if count > MAX_VECTORS:
            raise InputError(
                f"nodes: {nodes} nodes and {frames} frames make {count:,} vectors, too many for "
                "weights of every node; use ridge-shared."
            )
        # Unfitted, the straight line.
        self.position = nn.Parameter(torch.zeros(count, targets * nodes))
        self.velocity = nn.Parameter(torch.zeros(count, targets * nodes))

    @property
    def symmetries(self) -> Symmetries:
        return NAMED_NODES

    def vectors(self, start: Start) -> Tensor:
        check_nodes(start.graph, self.settings["nodes"])
        check_no_box(start.graph, "ridge takes offsets from the centroid")
        x, ahead = start.x.unsqueeze(1), start.ahead.unsqueeze(1)  # (B, 1, N, n)
        offset = x - x.mean(2, keepdim=True)
        differences = x - start.state.x[:, :-1]
        return torch.cat([differences, offset, ahead], dim=1).flatten(1, 2)  # (B, A, n)

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        of_times = weights.unflatten(1, (-1, self.settings["nodes"]))  # (A, T, N)
        return torch.einsum("bac,atn->btnc", vectors, of_times)

    def rows(self, vectors: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is not None:  # windows in which all nodes count
            vectors, values = vectors[mask.all(1)], values[mask.all(1)]
        return vectors.mT.flatten(0, 1), values.mT.flatten(0, 1)  # (B n, A), (B n, N)


class SharedRidge(_Ridge):
    """Ridge regression for particles: one set of weights for all nodes.

    The vectors of a node are its past differences and last velocity, the means of these over all
    nodes, its offset from the centroid, and means over its neighbours of the differences x_i - x_j
    and of their directions, both also multiplied by the edge attributes. Gaps in a node's path are
    filled in with straight lines (:func:`~spacetime_en.nn.state.without_gaps`).

    Args:
        frames: number L of frames.
        edge_features: number e of edge attributes.
        targets: number T of target times, each with its own weights.
    """

    def __init__(
        self, frames: PositiveInt = 10, edge_features: Count = 1, targets: PositiveInt = 1
    ) -> None:
        super().__init__()
        count = 2 * frames + 1 + 2 * (1 + edge_features)
        self.position = nn.Parameter(torch.zeros(count, targets))
        self.velocity = nn.Parameter(torch.zeros(count, targets))

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def vectors(self, start: Start) -> Tensor:
        graph = start.graph
        check_widths(graph, graph.feature_width, self.settings["edge_features"])
        x, ahead = start.x.unsqueeze(1), start.ahead.unsqueeze(1)  # (B, 1, N, n)
        motion = torch.cat([x - start.state.x[:, :-1], ahead], dim=1).transpose(1, 2)
        means = _mean_over_nodes(motion, graph.present).expand_as(motion)  # (B, N, L, n)
        offset = x.transpose(1, 2)
        offset = offset - _mean_over_nodes(offset, graph.present)  # (B, N, 1, n)
        if graph.box is not None:  # there is no centroid
            offset = torch.zeros_like(offset)
        edges = _over_edges(graph, start.units, start.state)
        return torch.cat([motion, means, offset, edges], dim=2)

    def check_window(self, graph: SpacetimeGraph) -> None:
        """Refuse windows of another length or without their last frame; gaps are filled in."""
        check_length(graph, self.settings["frames"])
        check_last_frame(graph)

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        return torch.einsum("bnac,at->btnc", vectors, weights)

    def rows(self, vectors: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if mask is None:
            return vectors.mT.flatten(0, 2), values.reshape(-1, 1)  # (B N n, A), (B N n, 1)
        return vectors.mT[mask].flatten(0, 1), values[mask].reshape(-1, 1)


def _mean_over_nodes(t: Tensor, present: Tensor | None) -> Tensor:
    """The mean over the nodes that exist, (B, N, A, n) -> (B, 1, A, n)."""
    if present is None:
        return t.mean(1, keepdim=True)
    nodes = present[..., None, None].to(t)
    return (t * nodes).sum(1, keepdim=True) / nodes.sum(1, keepdim=True)


class _NormalEquations:
    """Sums of F^T F, F^T Y and Y^2 over the rows of F w = Y."""

    def __init__(self) -> None:
        self.count = 0
        self.ff, self.fy, self.yy = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    def add(self, ff: Tensor, f: Tensor, y: Tensor) -> None:
        """Add rows f (R, A) with ff = f^T f, and y (R, outputs)."""
        self.count += len(y)
        self.ff, self.fy = self.ff + ff, self.fy + f.mT @ y
        self.yy = self.yy + y.square().sum(0)

    def solution(self, penalty: float) -> Tensor:
        """The weights that minimise |F w - Y|^2 + penalty |w|^2 mean(F^2), (A, outputs)."""
        scale = self.ff.diagonal().mean()
        if not scale > 0:  # nothing moves: the straight line
            return torch.zeros_like(self.fy)
        penalised = self.ff + penalty * scale * torch.eye(len(self.ff)).to(self.ff)
        weights: Tensor = torch.linalg.solve(penalised, self.fy)
        return weights

    def errors(self, w: Tensor) -> Tensor:
        """The mean squared errors of the weights on these rows, (outputs,)."""
        total = self.yy - 2 * (w * self.fy).sum(0) + (w * (self.ff @ w)).sum(0)
        return total.clamp(min=0.0) / self.count  # (rounding can make it negative)


def _over_edges(graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
    """Means over neighbours of a_ij (x_i - x_j) and of a_ij (x_i - x_j) / r_ij, in the last frame.

    Returns: (B, N, 2 (e + 1), n); the first attribute a_ij is 1.
    """
    edges = Neighbourhood.of(graph, units.cell(graph))
    difference = edges.differences(state.x)[:, -1]  # (B, N, K, n)
    a = state.a[:, -1]  # (B, N, K, e), 0 where there is no edge
    weights = torch.cat([edges.mask[:, -1, ..., None].to(a), a], dim=-1)
    weights = weights * edges.normaliser[:, -1].unsqueeze(-1)
    unit = difference / norm(difference).clamp(min=1e-12).unsqueeze(-1)
    both = torch.stack([difference, unit], dim=2)  # (B, N, 2, K, n)
    return torch.einsum("bnke,bnpkc->bnpec", weights, both).flatten(2, 3)
