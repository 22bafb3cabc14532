"""The simple forecast that a network corrects.

A network whose correction is zero at first is never worse than its base before training, and only
has to learn what the base misses.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import errors
from spacetime_en.nn.forecaster import ClosedForm, Example, Forecaster
from spacetime_en.nn.layers.target_times import hat_functions
from spacetime_en.nn.models.ridge import Ridge, SharedRidge
from spacetime_en.nn.models.trivial import TRIVIAL_MODELS, LastFrame, StraightLine
from spacetime_en.nn.requirements import check_length
from spacetime_en.nn.rollout import first_step

BaseName = Literal["auto", "straight-line", "last-frame", "parabola", "least-squares-line", "ridge"]
NAMES = (*TRIVIAL_MODELS, "ridge")


class Base(nn.Module):
    """A trivial forecast, or ridge regression: the given one, or the best on validation windows.

    Args:
        name: which; ``auto``: the one with the lowest error, the first in the list if tied.
        frames, edge_features, targets: for ridge, see
            :class:`~spacetime_en.nn.models.ridge.SharedRidge`.
        nodes: number N of nodes if each has its own weights in ridge; None: all share them.
    """

    number: Tensor  # index of the chosen one in NAMES, ()
    times: Tensor  # target times for which ridge was fitted, (T,)

    def __init__(
        self, name: BaseName, frames: int, edge_features: int, targets: int, nodes: int | None
    ) -> None:
        super().__init__()
        self.name = name
        self.ridge: ClosedForm | None = None
        if name in ("auto", "ridge"):
            self.ridge = self._ridge(frames, edge_features, targets, nodes)
        self.chosen: str = "straight-line" if name == "auto" else name
        self.register_buffer("number", torch.tensor(NAMES.index(self.chosen)))
        self.register_buffer("times", torch.arange(1.0, targets + 1))
        self.register_load_state_dict_post_hook(_take_choice)  # type: ignore[no-untyped-call]

    def _ridge(
        self, frames: int, edge_features: int, targets: int, nodes: int | None
    ) -> ClosedForm | None:
        """Ridge regression; None if it would have too many weights and another base is allowed."""
        try:
            if nodes is None:
                ridge: ClosedForm = SharedRidge(frames, edge_features, targets)
            else:
                ridge = Ridge(nodes, frames, targets)
        except InputError:
            if self.name != "auto":
                raise
            return None
        return ridge.requires_grad_(False)

    def forward(self, graph: SpacetimeGraph) -> Forecast:
        """The base's forecast at the target times of `graph`."""
        return self.beside_line(graph)[0]

    def beside_line(self, graph: SpacetimeGraph) -> tuple[Forecast, Forecast]:
        """The base's forecast, and the one of uniform motion."""
        line = StraightLine().forecast(graph)
        if self.chosen == "straight-line":
            return line, line
        if self.chosen != "ridge":
            return TRIVIAL_MODELS[self.chosen]().forecast(graph), line
        assert self.ridge is not None
        check_length(
            graph,
            self.ridge.settings["frames"],
            "the base of this model, ridge, has weights for",
            "give it as many, or train with base='straight-line' for windows of any length",
        )
        known = graph._replace(horizon=self.times.expand(graph.x.shape[0], -1))  # (len() fixes B)
        fitted, straight = self.ridge.forecast(known), StraightLine().forecast(known)
        # What ridge adds to uniform motion grows as t^2 in positions and as t in velocities.
        now, then = graph.horizon[..., None, None], self.times[:, None, None]
        weights = hat_functions(graph.horizon, self.times)
        x = now.square() * _mixed(weights, (fitted.x - straight.x) / then.square())
        v = now * _mixed(weights, (fitted.v - straight.v) / then)
        return line._replace(x=line.x + x, v=line.v + v), line

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Fit ridge, and choose the base."""
        self.times.copy_(train[0].horizon.mean(0))
        usual, found = self.chosen, {}
        for name in NAMES if self.name == "auto" else (self.name,):
            try:
                if name == "ridge":
                    if self.ridge is None:
                        continue
                    self.ridge.solve([train], [val])
                self.chosen = name
                found[name] = float(errors(self(val[0]), val[1])[0].mean())
            except InputError:  # data that it cannot be fitted to
                if self.name != "auto":
                    raise
        finite = {name: error for name, error in found.items() if math.isfinite(error)}
        self.chosen = min(finite, key=finite.__getitem__, default=usual)
        self.number.fill_(NAMES.index(self.chosen))


class Corrector(Forecaster):
    """A single-horizon network, which forecasts alone or corrects a base.

    With a base the forecast is base.x + gain (x - x(last)), base.v + gain v, where x and v are the
    network's and gain is a learned scalar, initially 0. A subclass implements :meth:`alone` and
    calls :meth:`_correct` in its constructor.
    """

    base: Base | None
    gain: nn.Parameter | None

    def _correct(self, name: BaseName | None, frames: int, edge_features: int) -> None:
        """Set up the base to correct, for L frames and e edge attributes; None: no base."""
        self.base = self.gain = None
        if name is not None:
            self.base = Base(name, frames, edge_features, targets=1, nodes=None)
            self.gain = nn.Parameter(torch.zeros(()))

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        """The network's forecast, without the base."""
        raise NotImplementedError(f"{type(self).__name__}: implement `alone`.")

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        own = self.alone(graph)
        if self.base is None or self.gain is None:
            return own
        base, last = self.base(graph), LastFrame().forecast(graph)
        x, v = base.x + self.gain * (own.x - last.x), base.v + self.gain * own.v
        return own._replace(x=x, v=v)

    @property
    def calibrates(self) -> bool:
        return self.base is not None or type(self).calibrate is not Corrector.calibrate

    def calibrate(self, train: Example, val: Example) -> None:
        """Fit and choose the base, for the first target time."""
        if self.base is not None:
            self.base.calibrate(first_step(*train), first_step(*val))


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """Values interpolated by weights, (B, T, S) and (B, S, N, n) -> (B, T, N, n)."""
    return torch.einsum("bts,bsnc->btnc", weights, values)


def _take_choice(base: nn.Module, _: object) -> None:
    """Set the name of the base from its loaded index, on which exported code could not branch."""
    assert isinstance(base, Base)
    number = int(base.number)
    if not 0 <= number < len(NAMES) or (NAMES[number] == "ridge" and base.ridge is None):
        raise InputError(f"base: the file of the model names base {number}, which it has not.")
    base.chosen = NAMES[number]
