"""SET-Flow for noisy windows: a bundle of flows, from states that the window leaves possible.

Far ahead, a flow from the most likely start is not the most likely end, and no forecast of one
point is: the mean over the bundle is the best, and its spread says how good that is.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, Positive, Scale
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.models.flow import Flow, Steps
from spacetime_en.nn.physics.observer import LONGEST, Observer, WindowStatistics, standard_normal
from spacetime_en.nn.state import Units

TRAINING_MEMBERS = 4
INITIAL_SOFTENING = 0.5  # of forces, in the model's units of length

Members = Annotated[int, msgspec.Meta(ge=1, le=1 << 14)]


class FlowEnsemble(Flow):
    """The mean of `members` flows through one learned law of force, and their spread.

    Noise hides what happens between nodes that are close: steps are equal, and forces softened
    below a length that is learned. The noise is what the frames of a window scatter by; training
    targets are taken to be as noisy as they are.

    Args:
        edge_features, node_features, hidden, length_scale, time_scale: as in
            :class:`~spacetime_en.nn.models.flow.Flow`.
        steps: number of steps to the horizon.
        members: number K of flows, even; it may be changed after training.
    """

    numbers: Tensor  # (2, 1, K, LONGEST)

    def __init__(
        self,
        edge_features: Count = 1,
        node_features: Count = 0,
        hidden: Positive = 32,
        steps: Steps = 64,
        members: Members = 64,
        length_scale: Scale = 1.0,
        time_scale: Scale = 1.0,
    ) -> None:
        super().__init__(
            edge_features, node_features, hidden, steps, None, length_scale, time_scale
        )
        if members % 2:
            raise InputError(f"members: expected an even number, found {members}.")
        self.observer = Observer()
        self.register_buffer("numbers", standard_normal(members).float(), persistent=False)
        self.softening = nn.Parameter(torch.tensor(math.log(INITIAL_SOFTENING)))

    def calibrate(self, train: Example, val: Example) -> None:
        """Begin with the noise that the training graphs show."""
        self.observer.calibrate(self._statistics(train[0])[1])

    def _statistics(self, graph: SpacetimeGraph) -> tuple[Units, WindowStatistics]:
        units = self.units(graph)
        return units, WindowStatistics.of(graph, units.normalize(graph), units.time)

    def _trajectory(
        self, graph: SpacetimeGraph, times: Tensor, bound: float | None = None
    ) -> list[Forecast]:
        units, statistics = self._statistics(graph)
        L = graph.x.shape[1]
        numbers = self.numbers[..., torch.arange(L, device=graph.x.device) % LONGEST]
        ends = self._bundle(graph, units, statistics, numbers, times, bound)

        def told(x: Tensor) -> Tensor | None:
            """The spread; of a single frame, nobody knows how noisy it is."""
            alone = (statistics.frames == 1).flatten(1)
            return None if L == 1 else spread(x).masked_fill(alone, torch.nan)

        return [units.denormalize(graph, x.mean(1), v.mean(1), told(x)) for x, v in ends]

    def _bundle(
        self,
        graph: SpacetimeGraph,
        units: Units,
        statistics: WindowStatistics,
        numbers: Tensor,
        times: Tensor,
        bound: float | None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Where the members are at `times`, (B, T): x and v, (B, K, N, n) each, for every time."""
        x, v = self.observer(statistics, numbers)  # (B, K, N, n)
        B, K = x.shape[:2]
        latest = graph.unwrapped().frame(graph.last_frame)
        pairs = self._pairs(latest, units, units.normalize(latest), self.softening.exp().expand(B))
        each = torch.arange(B, device=x.device).repeat_interleave(K)
        since = (times / units.time + statistics.before[:, None])[each]  # the start is before
        ends = self._legs(pairs.select(each), x.flatten(0, 1), v.flatten(0, 1), since, bound)
        return [(x.unflatten(0, (B, K)), v.unflatten(0, (B, K))) for x, v in ends]

    def set_progress(self, fraction: float) -> bool:
        """Nothing changes while it is trained."""
        return True

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The energy score of each graph, relative to what there is to explain, (B,).

        A node's score is the mean distance of the members from the target, less half of their mean
        distance from each other. On average it is least if members and target come from the same
        distribution: it teaches the law of force, where flows start, and how far they differ. The
        target is an observation, too, so that members are given the noise of one.
        """
        (B, L, N), K = graph.x.shape[:3], TRAINING_MEMBERS
        units, statistics = self._statistics(graph)
        size = float(self._typical_residual(graph, target, alpha).sqrt())
        # Where it ends, a member changes the loss by at most 2 / (K sqrt N) per unit of length;
        # where it starts, its velocity counts as often as it has time.
        time = float(graph.horizon.max()) / units.time
        steepest = 2 / (K * N**0.5) * max(1.0, alpha) ** 0.5 * max(1.0, time)
        bound = self.curriculum.max_gradient * steepest / (size * B)
        # (Drawn anew in every step, and not in pairs: the score is one of independent members.)
        numbers = torch.randn(2, B, K, L, dtype=graph.x.dtype, device=graph.x.device)
        ((x, v),) = self._bundle(graph, units, statistics, numbers, graph.horizon[:, None], bound)
        x = x + statistics.size_x * torch.randn_like(x)  # (B, K, N, n)
        v = v + statistics.size_v * torch.randn_like(v)
        ends = torch.cat([x, alpha**0.5 * v], dim=-1)
        x, v = units.seen(target)
        aim = torch.cat([x, alpha**0.5 * v], dim=-1)
        score = energy_score(ends, aim)  # (B, N)
        if graph.node_mask is not None:
            share = graph.node_mask.to(score).mean(1, keepdim=True)
            score = score.masked_fill(~graph.node_mask, 0.0) / share
        return score.mean(1) / size


def spread(x: Tensor) -> Tensor:
    """The standard deviation of a coordinate over members, (B, K, N, n) -> (B, N)."""
    # (Pairs of opposite sign have the mean that all members would have.)
    return (x.var(1, correction=0).mean(-1) + 1e-30).sqrt()


def energy_score(z: Tensor, y: Tensor) -> Tensor:
    """How well members z (B, K, N, c) stand for the distribution that y (B, N, c) is from, (B, N).

    Gneiting and Raftery (2007), Eq. 22, without bias for a finite number of independent members.
    """
    K = z.shape[1]
    far = _length(z - y[:, None]).mean(1)
    apart = _length(z[:, :, None] - z[:, None]).sum((1, 2)) / max(1, K * (K - 1))
    return far - apart / 2


def _length(t: Tensor) -> Tensor:
    return (t.square().sum(-1) + 1e-12).sqrt()  # (differentiable at 0)
