"""Equivariant ridge regression, solved in closed form: the baseline to try first.

The residual of a node from the straight line is a weighted sum of vectors that rotate with the data
and are invariant to translations: past differences x(last) - x(t), offsets from the centroid, and
the last velocities times the time to the target. The weights are scalars, so that the forecast is
equivariant whatever they are.
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
from spacetime_en.nn.models.regression import Regression, Start, best
from spacetime_en.nn.requirements import check_no_box, check_no_padding, check_nodes, check_widths
from spacetime_en.nn.state import State, Units

# Penalties relative to the mean square of a vector: from next to none to all but nothing left.
RIDGE_PENALTIES = tuple(10.0 ** (k / 2) for k in range(-20, 5))
MAX_VECTORS = 8_000  # beyond, the normal equations take gigabytes


class _Ridge(Regression):
    """What both forms have in common."""

    position: nn.Parameter  # (A, outputs)
    velocity: nn.Parameter

    def vectors(self, start: Start) -> Tensor:
        """The vectors of the regression: (B, N or 1, A, n)."""
        raise NotImplementedError

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """The forecasts that weights make of vectors, (B, N, n)."""
        raise NotImplementedError

    def rows(self, vectors: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """F and Y of F w = Y, from vectors and the residuals (B, N, n) to fit."""
        raise NotImplementedError

    def residual(self, start: Start) -> tuple[Tensor, Tensor]:
        vectors = self.vectors(start)
        return self.weighted(vectors, self.position), self.weighted(vectors, self.velocity)

    @torch.no_grad()
    def solve(self, train: Examples, val: Examples) -> float:
        """Set the weights to the best ones, with the penalty that is best for `val`."""
        errors, both = [], (self._equations(train), self._equations(val))
        for weights, fit, check in zip((self.position, self.velocity), *both, strict=True):
            error, penalty = best((check.error(fit.solution(p)), p) for p in RIDGE_PENALTIES)
            weights.copy_(fit.solution(penalty))
            errors.append(error)
        return errors[0]

    def _equations(self, examples: Examples) -> tuple[_NormalEquations, _NormalEquations]:
        """The normal equations for positions and for velocities, summed over all examples."""
        both = _NormalEquations(), _NormalEquations()
        for start, residual in self.starts(examples):
            vectors = self.vectors(start)
            for equations, values in zip(both, residual, strict=True):
                equations.add(*self.rows(vectors, values))
        return both


class Ridge(_Ridge):
    """Ridge regression for nodes with an identity, such as the joints of a body.

    Every node has its own weights for the vectors of all nodes.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
    """

    def __init__(self, nodes: PositiveInt, frames: PositiveInt = 10) -> None:
        super().__init__()
        count = (frames + 1) * nodes
        if count > MAX_VECTORS:
            raise InputError(
                f"nodes: {nodes} nodes and {frames} frames make {count:,} vectors, too many for "
                "weights of every node; use ridge-shared."
            )
        # Unfitted, the straight line.
        self.position = nn.Parameter(torch.zeros(count, nodes))
        self.velocity = nn.Parameter(torch.zeros(count, nodes))

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
        return torch.einsum("bac,an->bnc", vectors, weights)

    def rows(self, vectors: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return vectors.mT.flatten(0, 1), values.mT.flatten(0, 1)  # (B n, A), (B n, N)


class SharedRidge(_Ridge):
    """Ridge regression for particles: one set of weights for all nodes.

    The vectors of a node are its past differences and last velocity, their means over all nodes,
    its offset from the centroid, and means over its neighbours of differences x_i - x_j, as they
    are and at unit length, each also times the attributes of the edges.

    Args:
        frames: number L of frames.
        edge_features: number e of attributes of an edge.
    """

    def __init__(self, frames: PositiveInt = 10, edge_features: Count = 1) -> None:
        super().__init__()
        count = 2 * frames + 1 + 2 * (1 + edge_features)
        self.position = nn.Parameter(torch.zeros(count, 1))
        self.velocity = nn.Parameter(torch.zeros(count, 1))

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def vectors(self, start: Start) -> Tensor:
        graph = start.graph
        check_no_padding(graph, "ridge takes means over all nodes")
        check_widths(graph, graph.feature_width, self.settings["edge_features"])
        x, ahead = start.x.unsqueeze(1), start.ahead.unsqueeze(1)  # (B, 1, N, n)
        motion = torch.cat([x - start.state.x[:, :-1], ahead], dim=1).transpose(1, 2)
        means = motion.mean(1, keepdim=True).expand_as(motion)  # (B, N, L, n)
        offset = (x - x.mean(2, keepdim=True)).transpose(1, 2)  # (B, N, 1, n)
        if graph.box is not None:  # there is no centroid
            offset = torch.zeros_like(offset)
        edges = _over_edges(graph, start.units, start.state)
        return torch.cat([motion, means, offset, edges], dim=2)

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        return torch.einsum("bnac,a->bnc", vectors, weights[:, 0])

    def rows(self, vectors: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return vectors.mT.flatten(0, 2), values.reshape(-1, 1)  # (B N n, A), (B N n, 1)


class _NormalEquations:
    """Sums of F^T F, F^T Y and |Y|^2 over the rows of F w = Y."""

    def __init__(self) -> None:
        self.count = 0
        self.ff, self.fy, self.yy = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    def add(self, f: Tensor, y: Tensor) -> None:
        """Add rows: f (R, A), y (R, outputs)."""
        self.count += y.numel()
        self.ff, self.fy = self.ff + f.mT @ f, self.fy + f.mT @ y
        self.yy = self.yy + y.square().sum()

    def solution(self, penalty: float) -> Tensor:
        """The weights that minimise |F w - Y|^2 + penalty |w|^2 mean(F^2), (A, outputs)."""
        scale = self.ff.diagonal().mean()
        if not scale > 0:  # nothing moves: the straight line
            return torch.zeros_like(self.fy)
        penalised = self.ff + penalty * scale * torch.eye(len(self.ff)).to(self.ff)
        weights: Tensor = torch.linalg.solve(penalised, self.fy)
        return weights

    def error(self, w: Tensor) -> float:
        """The mean squared error of weights on these rows."""
        total = self.yy - 2 * (w * self.fy).sum() + (w * (self.ff @ w)).sum()
        return float(total.clamp(min=0.0)) / self.count  # (rounding can make it negative)


def _over_edges(graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
    """Means over neighbours of a_ij (x_i - x_j), and of the same at unit length, last frame.

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
