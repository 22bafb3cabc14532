"""SET-2: the general spacetime transformer. Time first, once; then space on one graph.

Each node's history becomes a few vectors (:mod:`~spacetime_en.nn.layers.history`), layers of
attention in space exchange what nodes know of each other
(:mod:`~spacetime_en.nn.layers.virtual_points`), and the forecast is a correction to a simple one
(:mod:`~spacetime_en.nn.models.base`), with coefficients that are functions of the target time:

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
from spacetime_en.metrics import energy_score, standard_deviation
from spacetime_en.nn.forecaster import Example, Forecaster
from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.layers.history import history_vectors
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.target_times import hat_functions
from spacetime_en.nn.layers.virtual_points import (
    HEADS,
    Invariants,
    VirtualPointAttention,
)
from spacetime_en.nn.models.base import Base, BaseName
from spacetime_en.nn.requirements import check_node_features, check_nodes, check_widths
from spacetime_en.nn.state import State, Units, counted, require_up

DEGREE = 3  # of the polynomials of time
ROUNDING = 5e-6  # largest relative rounding error of a vector in single precision
# Errors beyond this part of the base's typical error count by their length: at the start of
# training, and at its end, when the mean is to be right and not only the typical case.
OUTLIER = (0.3, 0.9)

Samples = Annotated[int, msgspec.Meta(ge=0, le=1 << 10)]


class SET2(Forecaster):
    """A correction to a simple forecast by attention in space between histories of nodes.

    N, L, T and n are free. It reads frame times and target times, gaps, and neighbour lists.

    Args:
        node_features: number of features of a node, such as its mass; 0 for graphs without.
        edge_features: number e of attributes of an edge.
        frames: number L of frames; read only by ridge as the base.
        targets: number T of target times that it is trained for.
        hidden: width of features and messages, a multiple of 4.
        channels: number C of vectors of a node.
        points: number R of virtual points of a node, a multiple of 4.
        layers: number of layers.
        base: what is corrected: ``straight-line``, ``last-frame``, ``parabola``,
            ``least-squares-line``, ``ridge``, or the best of these on validation windows.
        named: nodes have an identity, such as joints: each has an embedding, and weights of its
            own in ridge. The model is then tied to their number and order.
        nodes: number N of nodes, if named.
        samples: number S of paths that are drawn beside the forecast, each from a learned code, so
            that they are the same in every call and turn with the graph; their spread says how far
            off the forecast may be. 0: none.
        up: read the direction ``up`` of the graphs.
        length_scale: the length that the network sees as 1, see ``SpacetimeGraph.scales``.
        time_scale: the time that the network sees as 1.
    """

    forecasts_paths = True

    _outlier: float  # the part of the base's typical error beyond which errors are large

    # Measured on data by `calibrate`, and not learned.
    size: Tensor  # root mean square of each vector of the history, (K,)
    spacing: Tensor  # root mean square distance of neighbours, ()
    feature_mean: Tensor  # (node_features,)
    feature_size: Tensor  # standard deviation, (node_features,)
    edge_size: Tensor  # root mean square of each attribute of an edge, (e,)
    reach: Tensor  # root mean square error of the base at its target times, of x and v, (2, T)
    counts: Tensor  # mean number of targets of a window that count, ()

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
        self.set_progress(0.0)
        self.base = Base(base, frames, edge_features, targets, nodes if named else None)
        self.register_buffer("size", torch.ones(vectors - up))
        self.register_buffer("spacing", torch.ones(()))
        self.register_buffer("feature_mean", torch.zeros(node_features))
        self.register_buffer("feature_size", torch.ones(node_features))
        self.register_buffer("edge_size", torch.ones(edge_features))
        self.register_buffer("reach", torch.ones(2, targets))
        self.register_buffer("counts", torch.ones(()))
        self.embedding = nn.Parameter(0.3 * torch.randn(nodes or 0, hidden)) if named else None
        self.start = nn.Parameter(torch.randn(vectors, channels) * vectors**-0.5)
        self.invariants = Invariants(vectors, channels)
        self.enter = mlp(2 * channels + node_features, hidden, hidden)
        self.layers = nn.ModuleList(
            VirtualPointAttention(hidden, channels, points, edge_features + up)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, hidden)
        self.leave_at = nn.Linear(3, hidden, bias=False)
        # Coefficients of all vectors and of what the base adds to uniform motion, for x and v.
        self.coefficients = nn.Linear(hidden, 2 * (channels + vectors + 1))
        nn.init.zeros_(self.coefficients.weight)
        nn.init.zeros_(self.coefficients.bias)
        self.codes = nn.Parameter(torch.randn(samples, hidden)) if samples else None
        # How a sample departs from the forecast: coefficients of a straight line in time.
        self.departure = nn.Linear(hidden, 2 * (channels + vectors)) if samples else None

    @property
    def symmetries(self) -> Symmetries:
        return NAMED_NODES if self.settings["named"] else FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        base, line = self.base.beside_line(graph)
        units, state = self._state(graph)
        h, vectors = self._encode(graph, units, state)
        q = self.leave(self.norm(h)).unsqueeze(1) + self.leave_at(self._clock(graph)).unsqueeze(2)
        q = self.coefficients(F.silu(q)).unflatten(-1, (2, -1))  # (B, T, N, 2, C + K + 1)
        residual = (q[..., None, :-1] * vectors[:, None, :, None]).sum(-1)  # (B, T, N, 2, n)
        reach = self._reach(graph)  # (2, B, T, 1, 1)
        x = base.x + reach[0] * residual[..., 0, :]
        v = base.v + reach[1] * residual[..., 1, :]
        if self.base.chosen != "straight-line":
            share = q[..., -1:]  # (B, T, N, 2, 1)
            x = x + share[..., 0, :] * (base.x - line.x)
            v = v + share[..., 1, :] * (base.v - line.v)
        if self.codes is None:
            return base._replace(x=x, v=v)
        samples = x.unsqueeze(1) + reach[0].unsqueeze(1) * self._departures(graph, h, vectors)
        return base._replace(x=x, v=v, spread=standard_deviation(samples), samples=samples)

    def set_progress(self, fraction: float) -> bool:
        first, last = OUTLIER
        self._outlier = first * (last / first) ** fraction
        return True

    def _departures(self, graph: SpacetimeGraph, h: Tensor, vectors: Tensor) -> Tensor:
        """How far samples are from the forecast, relative to the reach, (B, S, T, N, n)."""
        assert self.codes is not None
        assert self.departure is not None
        each = F.silu(self.leave(self.norm(h)).unsqueeze(1) + self.codes.unsqueeze(1))
        q = self.departure(each).unflatten(-1, (2, -1))  # (B, S, N, 2, C + K)
        start, slope = torch.einsum("bsnpc,bnkc->pbsnk", q, vectors).unsqueeze(3)
        u = (graph.horizon / self.base.times[-1])[:, None, :, None, None]  # (B, 1, T, 1, 1)
        departures: Tensor = start + u * slope
        return departures

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """Errors relative to the base's typical one: squared if small, lengths if large, (B,).

        Rare events, such as close encounters, would make most of a squared error: young networks
        learn from all others first. Samples are taught by the energy score of a node's path. All
        nodes weigh the same, those of crowds too.
        """
        forecast, reach, mask = self(graph), self._reach(graph), _counted(graph, target)
        x, v = (forecast.x - target.x) / reach[0], (forecast.v - target.v) / reach[1]
        missing = ~mask.unsqueeze(-1)  # (B, T, N, 1); masked before squares, for the gradient
        x, v = x.masked_fill(missing, 0.0), v.masked_fill(missing, 0.0)
        loss: Tensor = (self._robust(x) + alpha * self._robust(v)).sum((1, 2)) / self.counts
        if forecast.samples is None:
            return loss
        z = (forecast.samples - target.x.unsqueeze(1)) / reach[0].unsqueeze(1)
        z = z.masked_fill(missing.unsqueeze(1), 0.0).transpose(2, 3).flatten(3)  # (B, S, N, T n)
        times = mask.sum(1)  # (B, N)
        z = z / (times * x.shape[-1]).clamp(min=1).sqrt()[:, None, :, None]
        scores = energy_score(z, torch.zeros_like(z[:, 0])) * times  # (B, N)
        return loss + scores.sum(1) / self.counts

    def _robust(self, difference: Tensor) -> Tensor:
        """The pseudo-Huber loss of vectors, (..., n) -> (...)."""
        square, outlier = difference.square().mean(-1), self._outlier
        return 2 * outlier * ((square + outlier**2).sqrt() - outlier)

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Choose the base, and measure the sizes of all that the network reads and forecasts."""
        graph, target = train
        self.base.calibrate(train, val)
        units, state = self._state(graph)
        there = graph.observed
        present = there.any(1) if there is not None else torch.ones_like(state.x[:, 0, :, 0]) > 0
        vectors = self.history(graph, state)[present]  # (M, n, K)
        size = _rms(vectors, (0, 1))
        # Rounding errors of the data must not become large numbers.
        seen = torch.ones_like(state.x[..., 0]) > 0 if there is None else there
        x, v = (_rms(t[seen], None) * torch.finfo(torch.float32).eps for t in state[1:3])
        rounding = torch.cat([v.expand(1), x.expand(DEGREE + 1), v.expand(DEGREE + 1)])
        self.size.copy_(_or_one(torch.maximum(size, rounding / ROUNDING)))
        latest = graph.latest()
        edges, now = Neighbourhood.of(latest, units.cell(latest)), units.normalize(latest)
        mask = edges.mask[:, 0]
        if mask.any():
            self.spacing.copy_(_or_one(_rms(edges.differences(now.x)[:, 0][mask], None)))
            self.edge_size.copy_(_or_one(_rms(now.a[:, 0][mask], (0,))))
        if self.settings["node_features"]:
            features = now.h[:, 0][present]
            self.feature_mean.copy_(features.mean(0))
            self.feature_size.copy_(_or_one(features.std(0, correction=0)))
        forecast, counts = self.base(graph), _counted(graph, target)
        self.counts.copy_(_or_one(counts.sum() / len(graph)))
        number = counts.sum((0, 2)).clamp(min=1)  # (T,)
        for k, (ours, true) in enumerate(((forecast.x, target.x), (forecast.v, target.v))):
            square = (ours - true).square().mean(-1).masked_fill(~counts, 0.0)  # (B, T, N)
            self.reach[k] = _or_one((square.sum((0, 2)) / number).sqrt())

    def _was_trained_for(self, graph: SpacetimeGraph) -> bool:
        """Whether the graph asks for times of the training, or times between those."""
        times, asked = self.base.times, graph.horizon
        between = (asked >= times[0] * (1 - 1e-3)) & (asked <= times[-1] * (1 + 1e-3))
        return bool(between.all()) if len(times) > 1 else super()._was_trained_for(graph)

    # --- the network ------------------------------------------------------------------------------

    def _state(self, graph: SpacetimeGraph) -> tuple[Units, State]:
        units = self.units(graph)
        return units, units.normalize(graph)

    def history(self, graph: SpacetimeGraph, state: State) -> Tensor:
        """What the network knows of each node's past, as vectors, (B, N, n, K)."""
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
        if self.embedding is not None:
            h = h + self.embedding
        vectors = history @ self.start
        for layer in self.layers:
            h, vectors = layer(h, vectors, x_ij, a_ij, edges)
        return h, torch.cat([vectors, history], dim=-1)

    def _clock(self, graph: SpacetimeGraph) -> Tensor:
        """The target times as the read-out sees them, (B, T, 3)."""
        u = graph.horizon / self.base.times[-1]
        return torch.stack([u, u.square(), torch.log(u.clamp(min=1e-6))], dim=-1)

    def _reach(self, graph: SpacetimeGraph) -> Tensor:
        """Typical errors of the base in x and v at the target times, (2, B, T, 1, 1)."""
        times = self.base.times
        weights = hat_functions(graph.horizon, times)
        x = graph.horizon * (weights @ (self.reach[0] / times))
        return torch.stack([x, weights @ self.reach[1]])[..., None, None]


def _compressed(vectors: Tensor) -> Tensor:
    """Vectors of the same direction whose length is the arcsinh of what it was, (B, N, n, K)."""
    length = (vectors.square().sum(-2, keepdim=True) + 1e-12).sqrt()
    return vectors * (torch.asinh(length) / length)


def _counted(graph: SpacetimeGraph, target: Forecast) -> Tensor:
    """Where a node is there and its target counts, (B, T, N)."""
    counts = counted(graph, target)
    return torch.ones_like(target.x[..., 0], dtype=torch.bool) if counts is None else counts


def _rms(t: Tensor, dims: tuple[int, ...] | None) -> Tensor:
    square = t.square()
    return (square.mean() if dims is None else square.mean(dims)).sqrt()


def _or_one(t: Tensor) -> Tensor:
    """Sizes, with 1 in place of 0: what is always 0 stays 0."""
    return torch.where(t > 0, t, 1.0)
