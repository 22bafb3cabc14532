"""SET-2: the general spacetime transformer. Time first, once; then space on one graph.

Each node's history is encoded as a few vectors (:mod:`~spacetime_en.nn.layers.history`), layers of
attention in space pass messages between nodes (:mod:`~spacetime_en.nn.layers.virtual_points`), and
the output is a correction to a simple forecast (:mod:`~spacetime_en.nn.models.base`), with
coefficients that are functions of the target time:

    x_i(t) = base_i(t) + reach(t) sum_c q_c(h_i, t) V_ic.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.geometry import FULL_SYMMETRY, NAMED_NODES, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import standard_deviation
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.layers.history import history_vectors
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.virtual_points import (
    HEADS,
    Invariants,
    VirtualPointAttention,
)
from spacetime_en.nn.models.base import BaseName
from spacetime_en.nn.models.path import PathCorrector, or_one, rms
from spacetime_en.nn.requirements import check_node_features, check_nodes, check_widths
from spacetime_en.nn.state import State, Units, require_up

DEGREE = 3  # of the polynomials in time
ROUNDING = 5e-6  # largest relative rounding error of a vector in single precision

Samples = Annotated[int, msgspec.Meta(ge=0, le=1 << 10)]


class SET2(PathCorrector):
    """A correction to a simple forecast, by spatial attention between encoded histories.

    N, T and n are free, and so is L, unless the base is ridge, which has weights for L frames. The
    model reads frame times and target times, and handles gaps and neighbour lists.

    Args:
        node_features: number of node features, such as masses; 0 for graphs without.
        edge_features: number e of edge attributes.
        frames: number L of frames; used only by ridge as the base.
        targets: number T of target times to train for.
        hidden: width of features and messages, a multiple of 4.
        channels: number C of vectors per node.
        points: number R of virtual points per node, a multiple of 4.
        layers: number of layers.
        base: the forecast to correct: ``straight-line``, ``last-frame``, ``parabola``,
            ``least-squares-line``, ``ridge``, or ``auto``, the best of these on validation windows.
        named: nodes have an identity, such as joints: each has its own embedding, and its own
            weights in ridge. The model is then tied to their number and order.
        nodes: number N of nodes, if named.
        samples: number S of paths to draw in addition to the forecast, each from a learned code, so
            that they are the same in every call and rotate with the graph; their spread estimates
            the uncertainty of the forecast. 0: none.
        up: read the direction ``up`` of the graphs.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
    """

    # Measured on data by `calibrate`, not learned.
    size: Tensor  # root mean square of each vector of the history, (K,)
    spacing: Tensor  # root mean square distance of neighbours, ()
    feature_mean: Tensor  # (node_features,)
    feature_size: Tensor  # standard deviation, (node_features,)
    edge_size: Tensor  # root mean square of each edge attribute, (e,)

    def __init__(
        self,
        node_features: Count = 0,
        edge_features: Count = 1,
        frames: PositiveInt = 10,
        targets: PositiveInt = 1,
        hidden: PositiveInt = 64,
        channels: PositiveInt = 16,
        points: PositiveInt = 4,
        layers: PositiveInt = 3,
        base: BaseName = "auto",
        named: bool = False,
        nodes: PositiveInt | None = None,
        samples: Samples = 0,
        up: bool = False,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        if samples == 1:
            raise InputError("samples: one sample shows no spread; expected 0, or 2 and more.")
        for name, width in (("hidden", hidden), ("points", points)):
            if width % HEADS:
                raise InputError(f"{name}: expected a multiple of {HEADS}, found {width}.")
        if named and nodes is None:
            raise InputError("nodes: named nodes are tied to their number; pass nodes=N.")
        vectors = 2 * DEGREE + 3 + up  # K
        self._correct(base, frames, edge_features, targets, nodes if named else None)
        self.register_buffer("size", torch.ones(vectors - up))
        self.register_buffer("spacing", torch.ones(()))
        self.register_buffer("feature_mean", torch.zeros(node_features))
        self.register_buffer("feature_size", torch.ones(node_features))
        self.register_buffer("edge_size", torch.ones(edge_features))
        self.embedding = nn.Parameter(0.3 * torch.randn(nodes or 0, hidden)) if named else None
        self.start = nn.Parameter(torch.randn(vectors, channels) * vectors**-0.5)
        self.invariants = Invariants(vectors, channels)
        self.enter = mlp(2 * channels + node_features, hidden, hidden)
        self.enter_age = nn.Parameter(torch.zeros(hidden))
        self.layers = nn.ModuleList(
            VirtualPointAttention(hidden, channels, points, edge_features + up)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, hidden)
        self.leave_at = nn.Linear(3, hidden, bias=False)
        # Coefficients of all vectors and of the base's deviation from uniform motion, for x and v.
        self.coefficients = nn.Linear(hidden, 2 * (channels + vectors + 1))
        nn.init.zeros_(self.coefficients.weight)
        nn.init.zeros_(self.coefficients.bias)
        self.codes = nn.Parameter(torch.randn(samples, hidden)) if samples else None
        if samples:
            self.branch = nn.Linear(hidden, hidden)
            # A sample's deviation from the forecast: coefficients of a parabola in time.
            self.departure = mlp(hidden, hidden, 3 * (channels + vectors))

    @property
    def symmetries(self) -> Symmetries:
        return NAMED_NODES if self.settings["named"] else FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, state = self._state(graph)
        h, vectors = self._encode(graph, units, state)
        q = self.leave(self.norm(h)).unsqueeze(1) + self.leave_at(self._clock(graph)).unsqueeze(2)
        q = self.coefficients(F.silu(q)).unflatten(-1, (2, -1))  # (B, T, N, 2, C + K + 1)
        residual = torch.einsum("btnkc,bnic->btnki", q[..., :-1], vectors)  # (B, T, N, 2, n)
        forecast = self._corrected(graph, residual, q[..., -1:])
        if self.codes is None:
            return forecast
        reach = self._reach(graph)[0].unsqueeze(1)  # (B, 1, T, 1, 1)
        samples = forecast.x.unsqueeze(1) + reach * self._departures(graph, h, vectors)
        return forecast._replace(spread=standard_deviation(samples), samples=samples)

    def _departures(self, graph: SpacetimeGraph, h: Tensor, vectors: Tensor) -> Tensor:
        """Deviations of the samples from the forecast, relative to the reach, (B, S, T, N, n)."""
        assert self.codes is not None
        each = F.silu(self.branch(self.norm(h)).unsqueeze(1) + self.codes.unsqueeze(1))
        q = self.departure(each).unflatten(-1, (3, -1))  # (B, S, N, 3, C + K)
        start, slope, bend = torch.einsum("bsnpc,bnkc->pbsnk", q, vectors).unsqueeze(3)
        u = (graph.horizon / self.base.times[-1])[:, None, :, None, None]  # (B, 1, T, 1, 1)
        departures: Tensor = start + u * slope + u.square() * bend
        return departures

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Choose the base, and measure the scales of the network's inputs and outputs."""
        super().calibrate(train, val)
        graph, _ = train
        units, state = self._state(graph)
        there = graph.observed
        present = there.any(1) if there is not None else torch.ones_like(state.x[:, 0, :, 0]) > 0
        vectors = self.history(graph, state)[present]  # (M, n, K)
        size = rms(vectors, (0, 1))
        # Rounding errors of the data must not be amplified to large values.
        seen = torch.ones_like(state.x[..., 0]) > 0 if there is None else there
        x, v = (rms(t[seen]) * torch.finfo(torch.float32).eps for t in state[1:3])
        rounding = torch.cat([v.expand(1), x.expand(DEGREE + 1), v.expand(DEGREE + 1)])
        self.size.copy_(or_one(torch.maximum(size, rounding / ROUNDING)))
        latest = graph.latest()
        edges, now = Neighbourhood.of(latest, units.cell(latest)), units.normalize(latest)
        mask = edges.mask[:, 0]
        if mask.any():
            self.spacing.copy_(or_one(rms(edges.differences(now.x)[:, 0][mask])))
            self.edge_size.copy_(or_one(rms(now.a[:, 0][mask], (0,))))
        if self.settings["node_features"]:
            features = now.h[:, 0][present]
            mean, size = features.mean(0), features.std(0, correction=0)
            self.feature_mean.copy_(mean)
            # (The measured size of a constant feature is a rounding error.)
            self.feature_size.copy_(or_one(size, least=ROUNDING * mean.abs()))

    # --- the network ------------------------------------------------------------------------------

    def _state(self, graph: SpacetimeGraph) -> tuple[Units, State]:
        units = self.units(graph)
        return units, units.normalize(graph)

    def history(self, graph: SpacetimeGraph, state: State) -> Tensor:
        """The encoding of each node's past, as vectors, (B, N, n, K)."""
        return history_vectors(graph, state, DEGREE)

    def _encode(self, graph: SpacetimeGraph, units: Units, state: State) -> tuple[Tensor, Tensor]:
        """Features (B, N, hidden) and vectors (B, N, n, C + K) of the nodes after all layers."""
        c, latest = self.settings, graph.latest()
        check_node_features(graph, c["node_features"])
        check_widths(graph, graph.feature_width, c["edge_features"])
        if c["named"]:
            check_nodes(graph, c["nodes"])
        now = units.normalize(latest)
        edges = Neighbourhood.of(latest, units.cell(latest))
        x_ij = edges.differences(now.x)[:, 0] / self.spacing  # (B, N, K, n)
        a_ij = now.a[:, 0] / self.edge_size
        history = self.history(graph, state) / self.size  # (B, N, n, K)
        if c["up"]:
            up = require_up(graph)[:, None, None]  # (B, 1, 1, n)
            each = up.mT.expand(-1, history.shape[1], -1, -1)  # (B, N, n, 1)
            if graph.observed is not None:  # (padding has no vectors)
                each = each * graph.observed.any(1)[..., None, None]
            history = torch.cat([history, each], dim=-1)
            a_ij = torch.cat([a_ij, (x_ij * up).sum(-1, keepdim=True)], dim=-1)
        history = _compressed(history)
        features = [self.invariants(history)[0]]
        if c["node_features"]:
            features.append((now.h[:, 0] - self.feature_mean) / self.feature_size)
        h = self.enter(torch.cat(features, dim=-1))
        age = graph.age / self.base.times[-1].to(h)  # old observations say less
        h = h + torch.log1p(age).unsqueeze(-1) * self.enter_age
        if self.embedding is not None:
            h = h + self.embedding
        vectors = history @ self.start
        for layer in self.layers:
            h, vectors = layer(h, vectors, x_ij, a_ij, edges)
        return h, torch.cat([vectors, history], dim=-1)


def _compressed(vectors: Tensor) -> Tensor:
    """Vectors of the same direction with lengths replaced by their arcsinh, (B, N, n, K)."""
    length = vectors.square().sum(-2, keepdim=True).clamp(min=1e-12).sqrt()
    return vectors * (torch.asinh(length) / length)
