"""What regressions in closed form have in common: they say what lies beyond the straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import ClosedForm, Examples
from spacetime_en.nn.requirements import check_ahead, check_frames
from spacetime_en.nn.state import State, Units

T = TypeVar("T")


def best(candidates: Iterable[tuple[float, T]]) -> tuple[float, T]:
    """Of errors and what has them, the least finite error."""
    finite = [pair for pair in candidates if math.isfinite(pair[0])]
    if not finite:
        raise InputError("targets: no penalty has a finite error; look for NaN and huge numbers.")
    return min(finite, key=lambda pair: pair[0])


class Start(NamedTuple):
    """A window as a regression sees it.

    Args:
        graph, units, state: the window, its units, and what they make of it.
        x: the last positions, (B, N, n).
        ahead: how far the last velocities lead, (B, N, n).
    """

    graph: SpacetimeGraph
    units: Units
    state: State
    x: Tensor
    ahead: Tensor


class Regression(ClosedForm):
    """The straight line, and beyond it a function that is fitted in closed form.

    A penalty draws it to the straight line, not to rest.
    """

    def residual(self, start: Start) -> tuple[Tensor, Tensor]:
        """How far positions, and velocities times the horizon, lie beyond the straight line.

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
        """Units, state, the last positions and how far their velocities lead."""
        check_frames(graph, self.settings["frames"])
        check_ahead(graph)
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        state = units.normalize(graph)
        ahead = graph.horizon[:, None, None] * state.v[:, -1]
        return Start(graph, units, state, state.x[:, -1], ahead)

    def starts(self, examples: Examples) -> Iterator[tuple[Start, tuple[Tensor, Tensor]]]:
        """Windows and what truly lay beyond their straight lines, in double precision."""
        empty = True
        for graph, target in examples:
            empty = False
            graph, target = graph.to(torch.float64), target.to(torch.float64)
            start = self.start(graph)
            x, v = start.units.seen(target)
            horizon = graph.horizon[:, None, None]
            yield start, (x - start.x - start.ahead, horizon * v - start.ahead)
        if empty:
            raise InputError("windows: expected some to fit and some to choose by, found none.")
