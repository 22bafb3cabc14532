"""SET-Flow for noisy windows: an ensemble of flows from sampled initial conditions.

Far ahead, the flow from the most likely initial condition is not the best forecast: the mean over
the ensemble is, and the ensemble's spread says how far off it may be.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import energy_score, standard_deviation
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.models.flow import Flow, Steps, shares
from spacetime_en.nn.physics.observer import MAX_FRAMES, Observer, WindowStatistics, standard_normal
from spacetime_en.nn.state import Units, counted

TRAINING_MEMBERS = 4
INITIAL_SOFTENING = 0.5  # of forces, in the model's units of length

Members = Annotated[int, msgspec.Meta(ge=1, le=1 << 14)]


class FlowEnsemble(Flow):
    """The mean of `members` flows through one learned law of force, and their spread.

    Noise hides what happens between nodes that are close: steps are equal, and forces are softened
    below a learned length. The noise is estimated from the scatter of a window's frames; training
    targets are taken to be as noisy as these.

    Args:
        edge_features, node_features, hidden, length_scale, time_scale: as in
            :class:`~spacetime_en.nn.models.flow.Flow`.
        steps: number of steps to the horizon.
        members: number K of flows, even; it may be changed after training.
    """

    draws: Tensor  # random numbers that sample initial conditions, (2, 1, K, MAX_FRAMES)

    def __init__(
        self,
        edge_features: Count = 1,
        node_features: Count = 0,
        hidden: PositiveInt = 32,
        steps: Steps = 64,
        members: Members = 64,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(
            edge_features, node_features, hidden, steps, None, length_scale, time_scale
        )
        if members % 2:
            raise InputError(f"members: expected an even number, found {members}.")
        self.observer = Observer()
        self.register_buffer("draws", standard_normal(members).float(), persistent=False)
        self.softening = nn.Parameter(torch.tensor(math.log(INITIAL_SOFTENING)))

    def calibrate(self, train: Example, val: Example) -> None:
        """Start from the noise that the training graphs show."""
        self.observer.calibrate(self._statistics(train[0])[1])

    def _statistics(self, graph: SpacetimeGraph) -> tuple[Units, WindowStatistics]:
        units = self.units(graph)
        return units, WindowStatistics.of(graph, units.normalize(graph), units.time)

    def _trajectory(self, graph: SpacetimeGraph, bound: float | None = None) -> Forecast:
        units, statistics = self._statistics(graph)
        L = graph.x.shape[1]
        draws = self.draws[..., torch.arange(L, device=graph.x.device) % MAX_FRAMES]
        x, v = self._integrate_members(graph, units, statistics, draws, bound)
        spread = None
        if L > 1:  # a single frame does not show how noisy it is
            single = (statistics.frames == 1).squeeze(3)  # (B, 1, N)
            spread = standard_deviation(x).masked_fill(single, torch.nan)
        return units.denormalize(graph, x.mean(1), v.mean(1), spread, x)

    def _integrate_members(
        self,
        graph: SpacetimeGraph,
        units: Units,
        statistics: WindowStatistics,
        draws: Tensor,
        bound: float | None,
    ) -> tuple[Tensor, Tensor]:
        """Positions and velocities of the members at the target times, (B, K, T, N, n) each."""
        x, v = self.observer(statistics, draws)  # (B, K, N, n)
        B, K = x.shape[:2]
        latest = graph.latest()
        pairs = self._pairs(latest, units, units.normalize(latest), self.softening.exp().expand(B))
        each = torch.arange(B, device=x.device).repeat_interleave(K)
        since = graph.horizon / units.time + statistics.mean_age[:, None]  # members start earlier
        x, v, pairs = x.flatten(0, 1), v.flatten(0, 1), pairs.select(each)
        # (The first way is longer by an age that differs from graph to graph: it has all steps.)
        parts = [1.0, *shares(graph)[1:]]
        x, v = self._integrate(pairs, x, v, since[each], parts, bound)
        return x.unflatten(0, (B, K)), v.unflatten(0, (B, K))

    def set_progress(self, fraction: float) -> bool:
        """Training has no stages."""
        return True

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The energy score of each graph, relative to the straight line's typical error, (B,).

        A node's score is the mean distance of the members from the target, less half of their mean
        distance from each other. Its expectation is least if members and target come from the same
        distribution: it teaches the law of force, the initial conditions and their spread. The
        target is an observation, too, so the noise of one is added to the members.
        """
        (B, L, N), K = graph.x.shape[:3], TRAINING_MEMBERS
        units, statistics = self._statistics(graph)
        scale = float(self._typical_residual(graph, target, alpha).sqrt())
        # The loss changes by at most 2 / (K sqrt N) per unit of length at the end of a member, and
        # by that times the duration per unit of velocity at its start.
        time = float(graph.horizon.max()) / units.time
        steepest = 2 / (K * N**0.5) * max(1.0, alpha) ** 0.5 * max(1.0, time)
        bound = self.curriculum.max_gradient * steepest / (scale * B)
        # (Drawn anew in every step, and not in pairs: the score is one of independent members.)
        draws = torch.randn(2, B, K, L, dtype=graph.x.dtype, device=graph.x.device)
        x, v = self._integrate_members(graph, units, statistics, draws, bound)
        noise_x, noise_v = (s.unsqueeze(2) for s in (statistics.noise_x, statistics.noise_v))
        x = x + noise_x * torch.randn_like(x)  # (B, K, T, N, n)
        v = v + noise_v * torch.randn_like(v)
        members = torch.cat([x, alpha**0.5 * v], dim=-1)
        x, v = units.normalize_forecast(target)
        observation = torch.cat([x, alpha**0.5 * v], dim=-1)
        mask = counted(graph, target)
        if mask is None:
            return energy_score(members, observation).mean((1, 2)) / scale
        # (Masked first: where a target is NaN, the gradient of its score would be NaN, too.)
        observation = observation.masked_fill(~mask.unsqueeze(-1), 0.0)
        score = energy_score(members, observation).masked_fill(~mask, 0.0)  # (B, T, N)
        return score.sum((1, 2)) / mask.sum((1, 2)).clamp(min=1) / scale
