"""Baselines with the signature of every model: learned ones, and the ones that learn nothing."""

import itertools

import torch
from torch import Tensor, nn

from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.block import with_distances
from spacetime_en.nn.egcl import EGNN
from spacetime_en.nn.etal import AttentionMaps
from spacetime_en.nn.forecaster import (
    FULL_SYMMETRY,
    Forecaster,
    Symmetries,
    check_dims,
    check_widths,
)
from spacetime_en.nn.neighbourhood import Neighbourhood
from spacetime_en.nn.state import Units, mean_over_time, with_up
from spacetime_en.schema import Count, Positive, Scale

Result = tuple[Forecast, tuple[AttentionMaps, ...]]


class EGNNForecaster(Forecaster):
    """EGNN on every frame, then the mean over the frames.

    Args:
        features: width d of the node features.
        edge_features: number e of attributes of an edge.
        hidden: width of the messages and features inside.
        layers: number of EGCLs.
        residual: in every EGCL.
        up: read the direction ``up`` of the graphs, as SET does.
        length_scale: the length that the network sees as 1, see ``SpacetimeGraph.scales``.
        time_scale: the time that the network sees as 1.
    """

    def __init__(
        self,
        features: Positive = 1,
        edge_features: Count = 1,
        hidden: Positive = 64,
        layers: Positive = 3,
        residual: bool = True,
        up: bool = False,
        length_scale: Scale = 1.0,
        time_scale: Scale = 1.0,
    ) -> None:
        super().__init__()
        self.egnn = EGNN(features + 2 * up, edge_features + 1, hidden, layers, residual, up)

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        c = self.settings
        check_widths(graph, c["features"], c["edge_features"])
        units = self.units(graph)
        state, up = units.enter(graph), None
        if c["up"]:
            state, up = with_up(state, graph)
        neighbourhood = Neighbourhood.of(graph, units.cell(graph))
        a = with_distances(state, neighbourhood)
        _, x, v = self.egnn(state.h, state.x, state.v, a, neighbourhood, up)
        x, v = (mean_over_time(t, graph.frame_mask) for t in (x, v))
        return units.leave(graph, x, v), ()


class MLP(Forecaster):
    """(x, v) of each node and frame through one network, then the mean over the frames.

    Args:
        dims: space dimensions n.
        hidden: width of the hidden layers.
        layers: number of hidden layers.
        length_scale: the length that the network sees as 1, see ``SpacetimeGraph.scales``.
        time_scale: the time that the network sees as 1.
    """

    def __init__(
        self,
        dims: Positive = 3,
        hidden: Positive = 128,
        layers: Positive = 5,
        length_scale: Scale = 1.0,
        time_scale: Scale = 1.0,
    ) -> None:
        super().__init__()
        widths = [2 * dims] + [hidden] * layers
        inside: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            inside += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*inside, nn.Linear(hidden, 2 * dims))

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=False, rotation=False, permutation=True)

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        c = self.settings
        check_dims(graph, c["dims"])
        units = self.units(graph)
        state = units.enter(graph)
        out = self.network(torch.cat([state.x, state.v], dim=-1))  # (B, L, N, 2n)
        x, v = mean_over_time(out, graph.frame_mask).chunk(2, dim=-1)
        return units.leave(graph, x, v), ()


class LinearDynamics(Forecaster):
    """From the last frame, x + alpha v and beta v + gamma: three learned numbers.

    The number gamma is added to every component of the velocity, which costs the model its
    rotation equivariance as soon as it is not 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(1.0))
        self.beta = nn.Parameter(torch.tensor(1.0))
        self.gamma = nn.Parameter(torch.tensor(0.0))

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=True, rotation=False, permutation=True)

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        units, x, v = last_state(graph)
        x, v = x + self.alpha * v, self.beta * v + self.gamma
        return units.leave(graph, x, v), ()


class LastFrame(Forecaster):
    """Nothing moves: the last observed positions and velocities."""

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        units, x, v = last_state(graph)
        return units.leave(graph, x, v), ()


class StraightLine(Forecaster):
    """Every node goes on with its last velocity: x + horizon v, v."""

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        units, x, v = last_state(graph)
        return units.leave(graph, x + graph.horizon[:, None, None] * v, v), ()


class Parabola(Forecaster):
    """Every node goes on along the parabola through its last three observed positions.

    Newton's form, x(t) = x_0 + (t - t_0) x[0, 1] + (t - t_0)(t - t_1) x[0, 1, 2], with divided
    differences, the last frame first. With fewer than three frames, the straight line.
    """

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        L = graph.x.shape[1]
        if L < 3:
            return StraightLine().forecast(graph, return_attention)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.enter(graph)
        number = torch.arange(L, device=graph.x.device).expand(len(graph), L)
        if graph.frame_mask is not None:
            number = torch.where(graph.frame_mask, number, -1)
        last = number.topk(3, dim=1).values  # (B, 3), the newest first, -1 where there is none
        frames = last.clamp(min=0)
        t = (graph.times - graph.times[:, -1:]).gather(1, frames).to(state.x.dtype)
        x = state.x.gather(1, frames[..., None, None].expand(-1, -1, *state.x.shape[2:]))
        t0, t1, t2 = (t[:, k, None, None] for k in range(3))
        x0, x1, x2 = x.unbind(1)  # (B, N, n)
        enough = (last[:, 2] >= 0)[:, None, None]
        slope, earlier = ((p - q) / _or_one(s - r) for p, q, s, r in
                          ((x0, x1, t0, t1), (x1, x2, t1, t2)))  # fmt: skip
        bend = (slope - earlier) / _or_one(t0 - t2)
        ahead = graph.horizon[:, None, None]
        parabola = x0 + ahead * slope + ahead * (ahead + t0 - t1) * bend
        rate = slope + (2 * ahead + t0 - t1) * bend
        line_x, line_v = last_state(graph)[1:]
        assert units.origin is not None
        line = line_x - units.origin[:, 0] + ahead * line_v
        return units.leave(
            graph, torch.where(enough, parabola, line), torch.where(enough, rate, line_v)
        ), ()


def _or_one(t: Tensor) -> Tensor:
    """Differences of times of frames that are there; 1 for those that are not."""
    return torch.where(t == 0, 1.0, t)


class LeastSquaresLine(Forecaster):
    """The straight line through the whole window that fits it best: for noisy observations.

    It minimises sum_t |x(t) - p - q t|^2 + |v(t) - q|^2 over p and q, for each node. Positions
    and velocities weigh the same, in the units of the graph: right when their noise is equal.
    """

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph, return_attention: bool) -> Result:
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.enter(graph)
        x_mean = mean_over_time(state.x, graph.frame_mask)  # (B, N, n)
        v_mean = mean_over_time(state.v, graph.frame_mask)
        seen = graph.frame_mask
        times = (graph.times - graph.times[:, :1]).to(state.x.dtype)
        times = times if seen is None else times.masked_fill(~seen, 0.0)
        t_mean = mean_over_time(times[..., None, None], seen)  # (B, 1, 1)
        t = times[..., None, None] - t_mean.unsqueeze(1)  # (B, L, 1, 1)
        # The normal equations: q (mean t^2 + 1) = mean(t x) + mean(v), t centred.
        spread = mean_over_time(t.square(), seen)
        q = (mean_over_time(t * state.x, seen) + v_mean) / (spread + 1)
        ahead = t.gather(1, graph.last_frame[:, None, None, None])[:, 0]  # last frame, centred
        x = x_mean + (ahead + graph.horizon[:, None, None]) * q
        return units.leave(graph, x, q), ()


def last_state(graph: SpacetimeGraph) -> tuple[Units, Tensor, Tensor]:
    """Positions and velocities of the last observed frame, each (B, N, n)."""
    units = Units.of(graph, length=1.0, time=1.0, centred=False)
    state = units.enter(graph)
    graphs = torch.arange(graph.x.shape[0], device=graph.x.device)
    return units, state.x[graphs, graph.last_frame], state.v[graphs, graph.last_frame]
