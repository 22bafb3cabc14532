"""What regressions in closed form have in common: they fit residuals from the straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import ClosedForm, Examples
from spacetime_en.nn.requirements import check_frames, check_horizon
from spacetime_en.nn.state import State, Units

T = TypeVar("T")


def best(candidates: Iterable[tuple[float, T]]) -> tuple[float, T]:
    """The candidate with the least finite error, and that error."""
    finite = [pair for pair in candidates if math.isfinite(pair[0])]
    if not finite:
        raise InputError("targets: no penalty has a finite error; look for NaN and huge numbers.")
    return min(finite, key=lambda pair: pair[0])


class Start(NamedTuple):
    """The inputs of a regression.

    Args:
        graph, units, state: the window, its units, and its state in these units.
        x: the last positions, (B, N, n).
        ahead: displacements at the last velocities over the horizon, (B, N, n).
    """

    graph: SpacetimeGraph
    units: Units
    state: State
    x: Tensor
    ahead: Tensor


class Regression(ClosedForm):
    """The straight line, plus a residual that is fitted in closed form.

    Penalties shrink the residual: forecasts are drawn to the straight line, not to rest.
    """

    def residual(self, start: Start) -> tuple[Tensor, Tensor]:
        """Residuals from the straight line of positions, and of velocities times the horizon.

        Returns: (B, N, n) each.
        """
        raise NotImplementedError

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        start = self.start(graph)
        position, velocity = self.residual(start)
        x = start.x + start.ahead + position
        v = (start.ahead + velocity) / graph.horizon[:, None, None]
        return start.units.denormalize(graph, x, v)

    def start(self, graph: SpacetimeGraph) -> Start:
        """The inputs of the regression for `graph`."""
        check_frames(graph, self.settings["frames"])
        check_horizon(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.normalize(graph)
        ahead = graph.horizon[:, None, None] * state.v[:, -1]
        return Start(graph, units, state, state.x[:, -1], ahead)

    def starts(self, examples: Examples) -> Iterator[tuple[Start, tuple[Tensor, Tensor]]]:
        """The inputs and the true residuals of all examples, in double precision."""
        empty = True
        for graph, target in examples:
            empty = False
            graph, target = graph.to(torch.float64), target.to(torch.float64)
            start = self.start(graph)
            x, v = start.units.normalize_forecast(target)
            horizon = graph.horizon[:, None, None]
            yield start, (x - start.x - start.ahead, horizon * v - start.ahead)
        if empty:
            raise InputError("windows: expected some to fit and some to choose by, found none.")
