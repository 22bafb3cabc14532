"""The common base of closed-form regressions, which fit residuals from the straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import ClosedForm, Examples
from spacetime_en.nn.requirements import check_frames, check_horizon, check_target_times
from spacetime_en.nn.state import State, Units, at_frame, counted, without_gaps

T = TypeVar("T")


def best(candidates: Iterable[tuple[float, T]]) -> tuple[float, T]:
    """The candidate with the lowest finite error, and that error."""
    finite = [pair for pair in candidates if math.isfinite(pair[0])]
    if not finite:
        raise InputError("targets: no penalty has a finite error; look for NaN and huge numbers.")
    return min(finite, key=lambda pair: pair[0])


class Start(NamedTuple):
    """The inputs of a regression.

    Args:
        graph, units, state: the window, its units, and its state in these units.
        x: the last positions, (B, N, n).
        v: the last velocities, (B, N, n).
        ahead: displacements at these velocities over the (last) horizon, (B, N, n).
    """

    graph: SpacetimeGraph
    units: Units
    state: State
    x: Tensor
    v: Tensor
    ahead: Tensor


class Residuals(NamedTuple):
    """What a regression adds to the straight line: (B, T, N, n) each.

    Args:
        x: to positions.
        v: to velocities, times the horizon.
    """

    x: Tensor
    v: Tensor


class Regression(ClosedForm):
    """The straight line plus residuals that are fitted in closed form, for each target time.

    Penalties shrink the residuals, so that forecasts tend to the straight line, not to rest.
    """

    forecasts_paths = True

    def residual(self, start: Start) -> Residuals:
        """The fitted residuals from the straight line."""
        raise NotImplementedError

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        start = self.start(graph)
        residual, horizon = self.residual(start), graph.horizon[..., None, None]
        x = start.x[:, None] + horizon * start.v[:, None] + residual.x
        v = (horizon * start.v[:, None] + residual.v) / horizon
        return start.units.denormalize(graph, x, v)

    def start(self, graph: SpacetimeGraph) -> Start:
        """The inputs of the regression for `graph`."""
        self.check_window(graph)
        check_target_times(graph, self.settings["targets"])
        check_horizon(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = without_gaps(graph, units.normalize(graph))
        v = at_frame(state.v, graph.last_observed)
        return Start(graph, units, state, state.x[:, -1], v, graph.horizon[:, -1, None, None] * v)

    def check_window(self, graph: SpacetimeGraph) -> None:
        """Refuse windows of another length, or with gaps."""
        check_frames(graph, self.settings["frames"])

    def starts(self, examples: Examples) -> Iterator[tuple[Start, Residuals, Tensor | None]]:
        """The inputs and the true residuals of all examples, and the mask of those that count."""
        empty = True
        for graph, target in examples:
            empty = False
            graph, target = graph.to(torch.float64), target.to(torch.float64)
            start = self.start(graph)
            x, v = start.units.normalize_forecast(target)
            ahead = graph.horizon[..., None, None] * start.v[:, None]
            mask = counted(graph, target)
            x, v = x - start.x[:, None] - ahead, graph.horizon[..., None, None] * v - ahead
            if mask is not None:
                x, v = (t.masked_fill(~mask.unsqueeze(-1), 0.0) for t in (x, v))
            yield start, Residuals(x, v), mask
        if empty:
            raise InputError("windows: expected some to fit and some to choose by, found none.")
