"""Equivariant ridge regression, solved in closed form: the baseline to try first.

How far a node gets beyond the straight line is a weighted sum of vectors that turn with the data
and do not shift with it: past differences x(last) - x(t), offsets from the centroid, and the last
velocities times the time to the target. The weights are scalars, so that the forecast is
equivariant whatever they are. (A penalty on them draws it to the straight line, not to rest.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spacetime_en.errors import InputError
from spacetime_en.geometry import norm
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.etal import AttentionMaps
from spacetime_en.nn.forecaster import (
    FULL_SYMMETRY,
    ClosedForm,
    Pairs,
    Symmetries,
    check_ahead,
    check_frames,
    check_no_box,
    check_no_padding,
    check_nodes,
    check_sizes,
    check_widths,
)
from spacetime_en.nn.neighbourhood import Neighbourhood
from spacetime_en.nn.state import State, Units

# Penalties relative to the mean square of a vector: from none to all but nothing.
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-20, 5))
MOST = 8_000  # vectors: beyond, the normal equations take gigabytes


class _Regression(ClosedForm):
    """What both forms have in common."""

    position: nn.Parameter  # (A, outputs)
    velocity: nn.Parameter

    def vectors(self, graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
        """The vectors of the regression: (B, N or 1, A, n)."""
        raise NotImplementedError

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """The forecasts that weights make of vectors, (B, N, n)."""
        raise NotImplementedError

    def rows(self, vectors: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """F and Y of F w = Y, from vectors and the values (B, N, n) to be met."""
        raise NotImplementedError

    def forecast(
        self, graph: SpacetimeGraph, return_attention: bool
    ) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
        units, state, x, ahead = self._start(graph)
        vectors = self.vectors(graph, units, state)
        x = x + ahead + self.weighted(vectors, self.position)
        v = (ahead + self.weighted(vectors, self.velocity)) / graph.horizon[:, None, None]
        return units.leave(graph, x, v), ()

    def _start(self, graph: SpacetimeGraph) -> tuple[Units, State, Tensor, Tensor]:
        """Units, state, the last positions and how far their velocities lead, (B, N, n)."""
        check_frames(graph, self.settings["frames"])
        check_ahead(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.enter(graph)
        return units, state, state.x[:, -1], graph.horizon[:, None, None] * state.v[:, -1]

    @torch.no_grad()
    def solve(self, train: Pairs, val: Pairs) -> float:
        """Set the weights to the best ones, with the penalty that is best for `val`."""
        fitted, chosen = (self._equations(pairs) for pairs in (train, val))
        found = []
        for weights, own, other in zip((self.position, self.velocity), fitted, chosen, strict=True):
            error, penalty = min((other.error(own.solution(p)), p) for p in PENALTIES)
            weights.copy_(own.solution(penalty))
            found.append(error)
        return found[0]

    def _equations(self, pairs: Pairs) -> tuple[_NormalEquations, _NormalEquations]:
        """The normal equations for positions and for velocities, summed over all pairs."""
        both = _NormalEquations(), _NormalEquations()
        for graph, target in pairs:
            graph, target = graph.to(torch.float64), target.to(torch.float64)
            units, state, x, ahead = self._start(graph)
            vectors = self.vectors(graph, units, state)
            assert units.origin is not None
            beyond = (
                target.x - units.origin[:, 0] - x - ahead,
                graph.horizon[:, None, None] * target.v - ahead,
            )
            for equations, values in zip(both, beyond, strict=True):
                equations.add(*self.rows(vectors, values))
        return both


class Ridge(_Regression):
    """Ridge regression for nodes with an identity, as the joints of a body have.

    Every node has weights of its own for the vectors of all nodes.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
    """

    def __init__(self, nodes: int, frames: int = 10) -> None:
        super().__init__()
        check_sizes(nodes=nodes, frames=frames)
        count = (frames + 1) * nodes
        if count > MOST:
            raise InputError(
                f"nodes: {nodes} nodes and {frames} frames make {count:,} vectors, too many for "
                "weights of every node; use ridge-shared."
            )
        # As built, the straight line.
        self.position = nn.Parameter(torch.zeros(count, nodes))
        self.velocity = nn.Parameter(torch.zeros(count, nodes))

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=True, rotation=True, permutation=False)

    def vectors(self, graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
        check_nodes(graph, self.settings["nodes"])
        check_no_box(graph, "ridge takes offsets from the centroid")
        x = state.x[:, -1:]  # (B, 1, N, n)
        offset = x - x.mean(2, keepdim=True)
        ahead = graph.horizon[:, None, None, None] * state.v[:, -1:]
        return torch.cat([x - state.x[:, :-1], offset, ahead], dim=1).flatten(1, 2)  # (B, A, n)

    def weighted(self, vectors: Tensor, weights: Tensor) -> Tensor:
        return torch.einsum("bac,an->bnc", vectors, weights)

    def rows(self, vectors: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return vectors.mT.flatten(0, 1), values.mT.flatten(0, 1)  # (B n, A), (B n, N)


class SharedRidge(_Regression):
    """Ridge regression for particles: one set of weights for all nodes.

    The vectors of a node are its own, their means over all nodes, and means over its neighbours
    of differences x_i - x_j, plain and at unit length, each also times the edges' attributes.

    Args:
        frames: number L of frames.
        edge_features: number e of attributes of an edge.
    """

    def __init__(self, frames: int = 10, edge_features: int = 1) -> None:
        super().__init__()
        check_sizes(frames=frames)
        count = 2 * frames + 1 + 2 * (1 + edge_features)
        self.position = nn.Parameter(torch.zeros(count, 1))
        self.velocity = nn.Parameter(torch.zeros(count, 1))

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def vectors(self, graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
        check_no_padding(graph, "ridge takes means over all nodes")
        check_widths(graph, graph.feature_width, self.settings["edge_features"])
        x = state.x[:, -1:]  # (B, 1, N, n)
        ahead = graph.horizon[:, None, None, None] * state.v[:, -1:]
        own = torch.cat([x - state.x[:, :-1], ahead], dim=1).transpose(1, 2)  # (B, N, L, n)
        means = own.mean(1, keepdim=True).expand_as(own)
        offset = (x - x.mean(2, keepdim=True)).transpose(1, 2)  # (B, N, 1, n)
        if graph.box is not None:  # there is no centroid
            offset = torch.zeros_like(offset)
        return torch.cat([own, means, offset, _over_edges(graph, units, state)], dim=2)

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
        if not scale > 0:  # nothing moves, and the straight line says so
            return torch.zeros_like(self.fy)
        whole = self.ff + penalty * scale * torch.eye(len(self.ff)).to(self.ff)
        found: Tensor = torch.linalg.solve(whole, self.fy)
        return found

    def error(self, w: Tensor) -> float:
        """The mean squared error of weights on these rows."""
        total = self.yy - 2 * (w * self.fy).sum() + (w * (self.ff @ w)).sum()
        return float(total) / self.count


def _over_edges(graph: SpacetimeGraph, units: Units, state: State) -> Tensor:
    """Means over neighbours of a_ij (x_i - x_j), and of the same at unit length, last frame.

    Returns: (B, N, 2 (e + 1), n), the attribute 1 among the a_ij.
    """
    edges = Neighbourhood.of(graph, units.cell(graph))
    difference = edges.differences(state.x)[:, -1]  # (B, N, K, n)
    a = state.a[:, -1]  # (B, N, K, e), 0 where there is no edge
    weights = torch.cat([edges.mask[:, -1, ..., None].to(a), a], dim=-1)
    weights = weights * edges.normaliser[:, -1].unsqueeze(-1)
    unit = difference / norm(difference).clamp(min=1e-12).unsqueeze(-1)
    both = torch.stack([difference, unit], dim=2)  # (B, N, 2, K, n)
    return torch.einsum("bnke,bnpkc->bnpec", weights, both).flatten(2, 3)
