"""Baselines without parameters, which every model must beat."""

import torch
from torch import Tensor

from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.state import Units, last_state, mean_over_time


class LastFrame(Forecaster):
    """Nothing moves: the last observed positions and velocities."""

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, x, v = last_state(graph)
        return units.denormalize(graph, x, v)


class StraightLine(Forecaster):
    """Every node goes on with its last velocity: x + horizon v, v."""

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, x, v = last_state(graph)
        return units.denormalize(graph, x + graph.horizon[:, None, None] * v, v)


class Parabola(Forecaster):
    """Every node goes on along the parabola through its last three observed positions.

    Newton's form, x(t) = x_0 + (t - t_0) x[0, 1] + (t - t_0)(t - t_1) x[0, 1, 2], with divided
    differences, the last frame first. With fewer than three frames, the straight line.
    """

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        L = graph.x.shape[1]
        if L < 3:
            return StraightLine().forecast(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.normalize(graph)
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
        return units.denormalize(
            graph, torch.where(enough, parabola, line), torch.where(enough, rate, line_v)
        )


def _or_one(t: Tensor) -> Tensor:
    """Time differences, with 1 in place of the 0 of missing frames."""
    return torch.where(t == 0, 1.0, t)


class LeastSquaresLine(Forecaster):
    """The straight line through the whole window that fits it best: for noisy observations.

    It minimises sum_t |x(t) - p - q t|^2 + |v(t) - q|^2 over p and q, for each node. Positions
    and velocities weigh the same, in the units of the graph: right when their noise is equal.
    """

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.normalize(graph)
        x_mean = mean_over_time(state.x, graph.frame_mask)  # (B, N, n)
        v_mean = mean_over_time(state.v, graph.frame_mask)
        observed = graph.frame_mask
        times = (graph.times - graph.times[:, :1]).to(state.x.dtype)
        times = times if observed is None else times.masked_fill(~observed, 0.0)
        t_mean = mean_over_time(times[..., None, None], observed)  # (B, 1, 1)
        t = times[..., None, None] - t_mean.unsqueeze(1)  # (B, L, 1, 1)
        # The normal equations: q (mean t^2 + 1) = mean(t x) + mean(v), t centred.
        spread = mean_over_time(t.square(), observed)
        q = (mean_over_time(t * state.x, observed) + v_mean) / (spread + 1)
        ahead = t.gather(1, graph.last_frame[:, None, None, None])[:, 0]  # last frame, centred
        x = x_mean + (ahead + graph.horizon[:, None, None]) * q
        return units.denormalize(graph, x, q)
