"""Baselines without parameters, which every model must beat."""

import torch
from torch import Tensor

from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.state import Units, at_frame, last_state, mean_over_time


class _Trivial(Forecaster):
    """The common base: forecasts start from each node's own observations, for any target time."""

    forecasts_paths = True
    reads_horizon = True

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY


class LastFrame(_Trivial):
    """Nothing moves: each node's last observed position and velocity."""

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, x, v = last_state(graph)
        T = graph.horizon.shape[1]
        x, v = (t.unsqueeze(1).expand(-1, T, -1, -1) for t in (x, v))
        return units.denormalize(graph, x, v)


class StraightLine(_Trivial):
    """Every node continues at its last velocity: x + horizon v, v."""

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, x, v = last_state(graph)
        ahead = times_ahead(graph)  # (B, T, N, 1)
        v = v.unsqueeze(1).expand(-1, ahead.shape[1], -1, -1)
        return units.denormalize(graph, x.unsqueeze(1) + ahead * v, v)


def times_ahead(graph: SpacetimeGraph) -> Tensor:
    """The times from each node's last observation to the targets, (B, T, N, 1)."""
    ahead = graph.horizon.unsqueeze(2)
    if graph.observed is not None:
        ahead = ahead + graph.age.unsqueeze(1)
    return ahead.unsqueeze(3)


class Parabola(_Trivial):
    """Every node continues on the parabola through its last three observed positions.

    In Newton's form, x(t) = x_0 + (t - t_0) x[0, 1] + (t - t_0)(t - t_1) x[0, 1, 2], with divided
    differences and the last observation as x_0. With fewer than three observations, the straight
    line.
    """

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        B, L, N, _ = graph.x.shape
        if L < 3:
            return StraightLine().forecast(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.normalize(graph)
        number = torch.arange(L, device=graph.x.device)[None, :, None].expand(B, L, N)
        if graph.observed is not None:
            number = torch.where(graph.observed, number, -1)
        last = number.topk(3, dim=1).values  # (B, 3, N), newest first, -1 where there is none
        frames = last.clamp(min=0).unbind(1)
        times = -graph.since.to(state.x.dtype)[..., None, None].expand(B, L, N, 1)
        (x0, t0), (x1, t1), (x2, t2) = (
            (at_frame(state.x, frame), at_frame(times, frame)) for frame in frames
        )  # (B, N, n), (B, N, 1)
        slope = (x0 - x1) / _or_one(t0 - t1)
        earlier = (x1 - x2) / _or_one(t1 - t2)
        bend = ((slope - earlier) / _or_one(t0 - t2)).unsqueeze(1)
        slope, since = slope.unsqueeze(1), (t0 - t1).unsqueeze(1)
        ahead = times_ahead(graph)  # (B, T, N, 1)
        parabola = x0.unsqueeze(1) + ahead * slope + ahead * (ahead + since) * bend
        rate = slope + (2 * ahead + since) * bend
        v = at_frame(state.v, graph.last_observed).unsqueeze(1)
        line = at_frame(state.x, graph.last_observed).unsqueeze(1) + ahead * v
        enough = (last[:, 2] >= 0)[:, None, :, None]
        x, v = torch.where(enough, parabola, line), torch.where(enough, rate, v)
        return units.denormalize(graph, x, v)


def _or_one(t: Tensor) -> Tensor:
    """Time differences, with 1 in place of the 0 of missing frames."""
    return torch.where(t == 0, 1.0, t)


class LeastSquaresLine(_Trivial):
    """The straight line that best fits all of a node's observations: for noisy data.

    It minimises sum_t |x(t) - p - q t|^2 + |v(t) - q|^2 over p and q, for each node. Positions
    and velocities have the same weight, in the units of the graph: right if their noise is equal.
    """

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state, observed = units.normalize(graph), graph.observed
        x_mean = mean_over_time(state.x, observed)  # (B, N, n)
        v_mean = mean_over_time(state.v, observed)
        times = (graph.times - graph.times[:, :1]).to(state.x.dtype)[..., None, None]
        if observed is not None:  # (the first frame may be missing, and its time arbitrary)
            times = -graph.since.to(state.x.dtype)[..., None, None]  # (B, L, 1, 1)
            times = times.masked_fill(~observed.unsqueeze(-1), 0.0)  # (B, L, N, 1)
        t_mean = mean_over_time(times, observed)  # (B, 1 or N, 1)
        t = times - t_mean.unsqueeze(1)
        # The normal equations: q (mean t^2 + 1) = mean(t x) + mean(v), t centred.
        spread = mean_over_time(t.square(), observed)
        q = (mean_over_time(t * state.x, observed) + v_mean) / (spread + 1)
        last = at_frame(t.expand(*state.x.shape[:3], 1), graph.last_observed)  # (B, N, 1), centred
        q = q.unsqueeze(1)
        x = x_mean.unsqueeze(1) + (last.unsqueeze(1) + times_ahead(graph)) * q
        return units.denormalize(graph, x, q.expand_as(x))


TRIVIAL_MODELS: dict[str, type[Forecaster]] = {
    "last-frame": LastFrame,
    "straight-line": StraightLine,
    "parabola": Parabola,
    "least-squares-line": LeastSquaresLine,
}
