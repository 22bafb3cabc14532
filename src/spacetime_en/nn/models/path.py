"""Networks that correct a simple forecast at several target times at once.

The forecast is that of a base (:mod:`~spacetime_en.nn.models.base`) plus a residual, in units of
the base's own typical error, which is a function of the target time:

    x_i(t) = base_i(t) + reach(t) r_i(t).
"""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import energy_score
from spacetime_en.nn.forecaster import Example, Forecaster
from spacetime_en.nn.layers.target_times import hat_functions
from spacetime_en.nn.models.base import Base, BaseName
from spacetime_en.nn.requirements import check_horizon
from spacetime_en.nn.state import counted

# The pseudo-Huber loss is linear in errors beyond this fraction of the base's typical error: at the
# start of training, and at its end, when the mean should be right and not only the typical case.
OUTLIER = (0.3, 0.9)


class PathCorrector(Forecaster):
    """A network that corrects a base along a path, with errors relative to those of the base.

    A subclass calls :meth:`_correct` in its constructor, and :meth:`_corrected` in `forecast`.
    """

    forecasts_paths = True
    interpolates_times = True

    base: Base
    _outlier: float  # fraction of the base's typical error beyond which errors count as large

    # Measured on data by `calibrate`, not learned.
    reach: Tensor  # root mean square error of the base at its target times, in x and v, (2, T)
    counts: Tensor  # mean number of targets per window that count, ()

    def _correct(
        self, name: BaseName, frames: int, edge_features: int, targets: int, nodes: int | None
    ) -> None:
        """Set up the base to correct; the arguments are those of `Base`."""
        self.set_progress(0.0)
        self.base = Base(name, frames, edge_features, targets, nodes)
        self.register_buffer("reach", torch.ones(2, targets))
        self.register_buffer("counts", torch.ones(()))

    def _corrected(self, graph: SpacetimeGraph, residual: Tensor, share: Tensor) -> Forecast:
        """The base's forecast plus the network's correction.

        Args:
            residual: of x and v, relative to the reach, (B, T, N, 2, n).
            share: coefficient of the base's deviation from uniform motion, (B, T, N, 2, 1).
        """
        base, line = self.base.beside_line(graph)
        reach = self._reach(graph)  # (2, B, T, 1, 1)
        x = base.x + reach[0] * residual[..., 0, :]
        v = base.v + reach[1] * residual[..., 1, :]
        if self.base.chosen != "straight-line":
            x = x + share[..., 0, :] * (base.x - line.x)
            v = v + share[..., 1, :] * (base.v - line.v)
        return base._replace(x=x, v=v)

    def set_progress(self, fraction: float) -> bool:
        first, last = OUTLIER
        self._outlier = first * (last / first) ** fraction
        return True

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """Errors relative to the base's: quadratic if small, linear if large, (B,).

        Rare events, such as close encounters, would dominate a squared error; early in training the
        network learns from all others. All nodes have the same weight, alone or in a crowd.
        """
        forecast, reach, mask = self(graph), self._reach(graph), _counted(graph, target)
        x, v = (forecast.x - target.x) / reach[0], (forecast.v - target.v) / reach[1]
        missing = ~mask.unsqueeze(-1)  # (B, T, N, 1); masked before squares, for the gradient
        x, v = x.masked_fill(missing, 0.0), v.masked_fill(missing, 0.0)
        loss: Tensor = (self._robust(x) + alpha * self._robust(v)).sum((1, 2)) / self.counts
        if forecast.samples is None:
            return loss
        z = (forecast.samples - target.x.unsqueeze(1)) / reach[0].unsqueeze(1)
        z = z.masked_fill(missing.unsqueeze(1), 0.0).transpose(2, 3)  # (B, S, N, T, n)
        return loss + (sample_errors(z, mask.sum(1)) * mask.sum(1)).sum(1) / self.counts

    def _robust(self, difference: Tensor) -> Tensor:
        """The pseudo-Huber loss, (..., n) -> (...)."""
        square, outlier = difference.square().mean(-1), self._outlier
        return 2 * outlier * ((square + outlier**2).sqrt() - outlier)

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Choose the base, and measure its errors; subclasses also measure their inputs."""
        graph, target = train
        check_horizon(graph)
        self.base.calibrate(train, val)
        forecast, counts = self.base(graph), _counted(graph, target)
        self.counts.copy_(or_one(counts.sum() / len(graph)))
        number = counts.sum((0, 2)).clamp(min=1)  # (T,)
        for k, (ours, true) in enumerate(((forecast.x, target.x), (forecast.v, target.v))):
            square = (ours - true).square().mean(-1).masked_fill(~counts, 0.0)  # (B, T, N)
            self.reach[k] = or_one((square.sum((0, 2)) / number).sqrt())

    def _was_trained_for(self, graph: SpacetimeGraph) -> bool:
        """Whether the graph's target times are those of training, or between them."""
        times, asked = self.base.times, graph.horizon
        between = (asked >= times[0] * (1 - 1e-3)) & (asked <= times[-1] * (1 + 1e-3))
        return bool(between.all()) if len(times) > 1 else super()._was_trained_for(graph)

    def _clock(self, graph: SpacetimeGraph) -> Tensor:
        """The target times as the readout sees them, (B, T, 3)."""
        u = graph.horizon / self.base.times[-1]
        return torch.stack([u, u.square(), torch.log(u.clamp(min=1e-6))], dim=-1)

    def _reach(self, graph: SpacetimeGraph) -> Tensor:
        """Typical errors of the base in x and v at the target times, (2, B, T, 1, 1)."""
        times = self.base.times
        weights = hat_functions(graph.horizon, times)
        x = graph.horizon * (weights @ (self.reach[0] / times))
        return torch.stack([x, weights @ self.reach[1]])[..., None, None]


def sample_errors(z: Tensor, times: Tensor) -> Tensor:
    """How well samples represent the distribution of a node's path, (B, N); lower is better.

    The mean of two terms: the energy score of whole paths, which fits the distribution of samples
    to that of the truth, and the distance of the nearest sample, which spreads samples over
    wherever the truth may be.

    Args:
        z: differences of samples from the truth, 0 where it is unknown, (B, S, N, T, n).
        times: number of times at which it is known, (B, N).
    """
    times = times.clamp(min=1)
    paths = z.flatten(3) / (times * z.shape[-1]).sqrt()[:, None, :, None]
    score = energy_score(paths, torch.zeros_like(paths[:, 0]))
    nearest = (z.square().mean(-1) + 1e-12).sqrt().sum(-1).amin(1) / times
    return (score + nearest) / 2


def _counted(graph: SpacetimeGraph, target: Forecast) -> Tensor:
    """Where a node is present and its target counts, (B, T, N)."""
    counts = counted(graph, target)
    return torch.ones_like(target.x[..., 0], dtype=torch.bool) if counts is None else counts


def rms(t: Tensor, dims: tuple[int, ...] | None = None) -> Tensor:
    """The root mean square over some dimensions, or over all."""
    square = t.square()
    return (square.mean() if dims is None else square.mean(dims)).sqrt()


def or_one(t: Tensor, least: Tensor | float = 0.0) -> Tensor:
    """Scales, with those not above `least` replaced by 1, so that what is always 0 stays 0."""
    return torch.where(t > least, t, 1.0)
