"""Integration of a learned law of motion, from the last frame to any horizon.

Subclasses define the law. How it is integrated, in how many steps, and how it is learned from
chaotic trajectories is the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import LEAST
from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.models.trivial import LastFrame, StraightLine
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import Scheme, StepControl, advance
from spacetime_en.nn.requirements import check_node_features, check_widths
from spacetime_en.nn.state import State, Units

Steps = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
StepFraction = Annotated[float, msgspec.Meta(ge=LEAST, le=1.0)]
STEP_ROUNDING = 1e-4  # of a number of steps
MAX_LOG_MASS = 8.0  # of a learned mass, in either direction


@dataclass(frozen=True)
class Curriculum:
    """How training proceeds from smooth trajectories to close encounters.

    Chaos hides the force law at first: equal steps and softened forces keep trajectories smooth
    until the law is roughly known. Then steps adapt, forces are softened at very short range only,
    and outliers are gradually down-weighted. Times are fractions of the training budget.

    Args:
        equal_steps_until: when steps begin to adapt.
        softened_until: when the softening reaches its final value.
        softening: softening length at the start and at the end, in the model's units.
        outlier_limit: the error, relative to the straight line's, beyond which windows are
            down-weighted; when steps begin to adapt, and at the end.
        inlier_quantile: the limit is never below this quantile of a batch's errors.
        max_gradient: bound on a system's gradient, relative to the largest that its loss can have.
        max_steps: of a system up to one target time, in training and in evaluation.
    """

    equal_steps_until: float = 0.3
    softened_until: float = 0.7
    softening: tuple[float, float] = (0.5, 1e-3)
    outlier_limit: tuple[float, float] = (0.3, 3e-3)
    inlier_quantile: float = 0.2
    max_gradient: float = 3.0
    max_steps: tuple[int, int] = (150, 4000)


class LawOfMotion(Forecaster):
    """Integration of a learned law of motion, from the last frame to the horizon.

    Subclasses have the settings ``edge_features``, ``node_features``, ``steps``,
    ``step_fraction``, ``length_scale`` and ``time_scale``, see
    :class:`~spacetime_en.nn.models.flow.Flow`, and implement :meth:`scheme`; those whose law
    conserves an energy implement :meth:`energies`.
    """

    reads_horizon = True
    forecasts_paths = True
    curriculum = Curriculum()

    def __init__(self) -> None:
        super().__init__()
        self.progress = 1.0  # fraction of the training budget used
        self.log_mass: nn.Module | None = None

    def learn_masses(self, hidden: int) -> None:
        """Make the mass of a node a learned function of its features, if it has any."""
        if self.settings["node_features"]:
            self.log_mass = zeroed(mlp(self.settings["node_features"], hidden, 1))

    def scheme(self) -> Scheme:
        """The law of motion, with a method of integration."""
        raise NotImplementedError

    def energies(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """What :meth:`energy` returns, for nodes at x with velocities v, (B, N, n)."""
        return None

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        return self._trajectory(graph)

    def energy(self, graph: SpacetimeGraph) -> tuple[Tensor, Tensor] | None:
        """The energy that the learned law conserves, in the model's units."""
        units = self.units(graph)
        state = units.normalize(graph)
        return self.energies(self._pairs(graph, units, state), state.x[:, 0], state.v[:, 0])

    def _trajectory(self, graph: SpacetimeGraph, bound: float | None = None) -> Forecast:
        """The forecast; `bound` is that of :func:`advance`."""
        latest = graph.latest()
        units = self.units(latest)
        state = units.normalize(latest)
        pairs = self._pairs(latest, units, state)
        x, v = state.x[:, 0], state.v[:, 0]
        times = graph.horizon / units.time
        durations = times.diff(prepend=torch.zeros_like(times[:, :1])).unbind(1)  # T of (B,)
        controls = (self._step_control(share) for share in _shares(graph))
        legs = list(zip(durations, controls, strict=True))
        ends = advance(self.scheme(), pairs, x, v, legs, bound)
        x, v = (torch.stack(t, dim=1) for t in zip(*ends, strict=True))
        return units.denormalize(graph, x, v)

    def _softening(self) -> float:
        """The softening length at this point in training."""
        fraction = min(1.0, self.progress / self.curriculum.softened_until)
        return _between(*self.curriculum.softening, fraction)

    def _pairs(self, latest: SpacetimeGraph, units: Units, state: State) -> Pairs:
        """The pairs of single-frame graphs, with the features that forces depend on."""
        c = self.settings
        expected = c["node_features"]
        check_node_features(latest, expected)
        check_widths(latest, latest.feature_width, c["edge_features"])
        neighbourhood = Neighbourhood.of(latest, units.cell(latest))
        s = state.a
        if expected:
            h_i = state.h.unsqueeze(3).expand(*s.shape[:4], -1)
            s = torch.cat([s, h_i, neighbourhood.gather(state.h)], dim=-1)
        mass = None
        if self.log_mass is not None:
            mass = self.log_mass(state.h[:, 0]).clamp(-MAX_LOG_MASS, MAX_LOG_MASS).exp()
        return Pairs(neighbourhood, s, self._softening(), mass)

    def _step_control(self, share: float | Tensor) -> StepControl:
        """How steps are chosen at this point in training, for a share of the whole time.

        Args:
            share: of all graphs, or of each, (B,).
        """
        c = self.settings
        step_fraction = c["step_fraction"] if self._steps_adapt else None
        if step_fraction is not None and torch.compiler.is_exporting():
            raise InputError(
                "step_fraction: steps that depend on the data cannot be exported; in Python, "
                "from_pretrained(..., step_fraction=None, steps=...) loads it with equal ones."
            )
        if step_fraction is not None and self.training:
            step_fraction = 2 * step_fraction
        in_training, in_use = self.curriculum.max_steps
        max_steps = max(c["steps"], in_training if self.training else in_use)
        if isinstance(share, Tensor):
            wanted = share * c["steps"] - STEP_ROUNDING
            return StepControl(wanted.ceil().clamp(min=1), max_steps, step_fraction)
        min_steps = max(1, math.ceil(share * c["steps"] - STEP_ROUNDING))
        return StepControl(min_steps, max_steps, step_fraction)

    # --- training -----------------------------------------------------------------------------

    @property
    def _steps_adapt(self) -> bool:
        return self.progress >= self.curriculum.equal_steps_until

    def set_progress(self, fraction: float) -> bool:
        self.progress = fraction
        return fraction >= self.curriculum.softened_until

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The robust error at the targets, plus that of the flow from the first frame to the last.

        Distant targets alone say little about forces, because trajectories are chaotic; the frames
        of the window, if there are several, reveal them directly.
        """
        latest, losses = graph.latest(), []
        windows, first, last = _first_to_last(graph)
        if len(windows):
            within = self._robust_error(first, LastFrame()(last), alpha)
            losses.append(within.new_zeros(len(graph)).index_copy(0, windows, within))
        if not losses or self._steps_adapt:
            losses.append(self._robust_error(latest, target, alpha))
        return torch.stack(losses).sum(0)

    def _robust_error(self, start: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The error of each graph relative to the straight line's, bounded for outliers, (B,).

        The errors of single windows are unbounded. At first windows count by the square root of
        their error, then less and less beyond a limit that falls as the errors themselves do.
        """
        scale = self._typical_residual(start, target, alpha)
        c = self.curriculum
        late = max(0.0, (self.progress - c.equal_steps_until) / (1 - c.equal_steps_until))
        limit = _between(*c.outlier_limit, late) if late else 1.0
        bound = c.max_gradient / (limit * float(scale)) ** 0.5 / len(start)
        error = self.distance(self._trajectory(start, bound), target, alpha) / scale
        if not late:
            return (error + 1e-5).sqrt()
        return error / (error + error.detach().quantile(c.inlier_quantile).clamp(min=limit))

    def _typical_residual(self, start: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The straight line's median error over the graphs: what forces have to explain."""
        error = self.distance(StraightLine()(start), target, alpha).detach().median()
        return error.clamp(min=1e-10)  # (in the model's units; below it, nothing to explain)


def zeroed(phi: nn.Sequential) -> nn.Sequential:
    """Make the output of a network 0 before training."""
    for weight in phi[-1].parameters():
        nn.init.zeros_(weight)
    return phi


def _shares(graph: SpacetimeGraph) -> Sequence[float | Tensor]:
    """The intervals between the T target times, as fractions of the whole, (B,) each.

    (Compiled code must not depend on values: there, times are taken to be evenly spaced.)
    """
    horizon, T = graph.horizon, graph.horizon.shape[1]
    if T == 1 or torch.compiler.is_compiling():
        return [1 / T] * T
    legs = horizon.diff(prepend=torch.zeros_like(horizon[:, :1]))
    return (legs / horizon[:, -1:].clamp(min=1e-30)).unbind(1)


def _first_to_last(graph: SpacetimeGraph) -> tuple[Tensor, SpacetimeGraph, SpacetimeGraph]:
    """The first and the last frame of those windows whose nodes were all observed in both.

    Returns: the indices of these windows, (W,); their first frames, with the time to the last as
        horizon; and their last frames.
    """
    graph, end = graph.unwrapped(), graph.last_frame
    windows, start = torch.arange(len(graph), device=end.device), torch.zeros_like(end)
    if graph.x.shape[1] == 1:
        windows = windows[:0]
    elif graph.observed is not None:
        start = graph.observed.any(2).int().argmax(1)
        there = graph.observed[windows, start] & graph.observed[windows, end]  # (B, N)
        windows = windows[there.eq(graph.observed.any(1)).all(1) & (start < end)]
        graph, start, end = graph[windows], start[windows], end[windows]
    span = graph.since.gather(1, start[:, None]).to(graph.x)
    return windows, graph.frame(start, span), graph.frame(end, span)


def _between(start: float, end: float, fraction: float) -> float:
    """Geometric interpolation."""
    return float(start * (end / start) ** fraction)
