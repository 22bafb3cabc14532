"""The base class of all models: maps from SpacetimeGraph to Forecast with declared symmetries."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, get_type_hints

import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import arguments
from spacetime_en.facts import DataFacts, few_numbers
from spacetime_en.geometry import NO_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import errors
from spacetime_en.nn.pretrained import Pretrained
from spacetime_en.nn.rollout import rollout, with_times
from spacetime_en.nn.state import Units

Example = tuple[SpacetimeGraph, Forecast]  # windows and their targets
Examples = Iterable[Example]


class Forecaster(Pretrained, nn.Module):
    """Base class of all models; subclass it to give your own the same interface.

    A subclass implements :meth:`forecast`, and :attr:`symmetries` if it has any. The arguments of
    its constructor are checked against their annotations and recorded in ``config``, so that it can
    be saved and loaded; ``settings`` also holds those of its base classes. ``trained_on``
    describes the training data, once the model is trained.
    """

    reads_horizon: ClassVar[bool] = False  # whether one model can forecast any horizon
    forecasts_paths: ClassVar[bool] = False  # whether `forecast` handles several target times
    interpolates_times: ClassVar[bool] = False  # and any times between those of its training
    config: Mapping[str, Any] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})
    trained_on: DataFacts | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            return
        init = cls.__init__
        signature = inspect.signature(init)
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
            raise TypeError(f"{cls.__name__}.__init__: name all arguments, they are its config.")
        if taken := {"model", "format"} & set(signature.parameters):
            raise TypeError(
                f"{cls.__name__}.__init__: {min(taken)} has a meaning in model files; give the "
                "argument another name."
            )

        @functools.wraps(init)
        def recording_init(self: Any, *args: Any, **kw: Any) -> None:
            bound = signature.bind(self, *args, **kw)
            bound.apply_defaults()
            bound.arguments.update(arguments(bound.arguments, _hints(init)))
            _, *given = bound.arguments.items()
            if "config" not in vars(self):  # the subclass, whose arguments determine its bases'
                object.__setattr__(self, "config", dict(given))
            # A base class reads the arguments it was called with, not those of its subclass.
            object.__setattr__(self, "settings", vars(self).get("settings", {}) | dict(given))
            init(*bound.args, **bound.kwargs)

        cls.__init__ = recording_init  # type: ignore[method-assign]

    @property
    def symmetries(self) -> Symmetries:
        """The symmetries that hold for all weights of this architecture; unless told, none."""
        return NO_SYMMETRY

    @property
    def is_equivariant(self) -> bool:
        """Whether all of the symmetries hold."""
        return all(self.symmetries)

    @property
    def base_name(self) -> str | None:
        """The simple forecast that the model corrects, such as ``"ridge"``, or None.

        It is the model's ``base`` (:class:`~spacetime_en.nn.models.base.Base`); the correction is
        zero before training.
        """
        name: str | None = getattr(getattr(self, "base", None), "chosen", None)
        return name

    @property
    def corrects_base(self) -> bool:
        """Whether the model corrects a simple forecast, and so is validated before training."""
        return self.base_name is not None

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        """Forecast every node at the target times (a single one, unless `forecasts_paths`)."""
        raise NotImplementedError(f"{type(self).__name__}: implement `forecast`.")

    def energy(self, graph: SpacetimeGraph) -> tuple[Tensor, Tensor] | None:
        """The energy that the model's own law of motion conserves, for single-frame graphs.

        Returns: the kinetic energy of each node, (B, N), and half the potential energy of each of
            its pairs, (B, N, K); None for models without such a law, which most are.
        """
        return None

    @property
    def calibrates(self) -> bool:
        """Whether :meth:`calibrate` does anything."""
        return type(self).calibrate is not Forecaster.calibrate

    def calibrate(self, train: Example, val: Example) -> None:
        """Measure on data what is not learned by gradient descent, such as scales and means.

        Called once, before training. Most models measure nothing.

        Args:
            train, val: graphs and their targets, a few thousand at most: to measure on, and to
                choose hyperparameters with.
        """

    def set_progress(self, fraction: float) -> bool:
        """Set the progress of training, for models that are trained in stages; most are not.

        Called before every training step, and with 1 after the last.

        Args:
            fraction: fraction of the training budget used so far.
        Returns: whether forecasts are already made as they will be after training; until then,
            validation errors are not comparable with later ones.
        """
        return True

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """The training loss of each graph, (B,): Eq. 13, unless a model overrides it.

        Args:
            alpha: weight of the velocity error.
        """
        return self.distance(self(graph), target, alpha)

    def distance(self, forecast: Forecast, target: Forecast, alpha: float) -> Tensor:
        """Eq. 13 for each graph, in the model's own units of length and time, (B,)."""
        length, time = (self.settings.get(f"{what}_scale", 1.0) for what in ("length", "time"))
        x, v = errors(forecast, target)
        total: Tensor = x / length**2 + alpha * v * (time / length) ** 2
        return total

    def units(self, graph: SpacetimeGraph) -> Units:
        """The units and the origin that the model uses for `graph`."""
        length, time = self.settings["length_scale"], self.settings["time_scale"]
        return Units.of(graph, length, time, centred=self.symmetries.translation)

    def __call__(self, graph: SpacetimeGraph) -> Forecast:
        forecast: Forecast = super().__call__(graph)
        return forecast

    def forward(self, graph: SpacetimeGraph) -> Forecast:
        """Check the graph, and forecast every node at all target times.

        Single-horizon models forecast a path step by step, see
        :func:`~spacetime_en.nn.rollout.rollout`.
        """
        self.check(graph)
        if graph.horizon.shape[1] == 1 or self.forecasts_paths:
            return self._shaped(self.forecast(graph), graph)
        return self._step_by_step(graph)

    def _step_by_step(self, graph: SpacetimeGraph) -> Forecast:
        """The rollout of a single-horizon model, if its horizon is the time between frames."""
        facts = self.trained_on
        if facts is not None and facts.frame_time is not None:
            known = facts.horizon_times
            one_step = len(known) == 1 and math.isclose(known[0], facts.frame_time, rel_tol=1e-6)
            # (Several times were learned separately if `forecasts_paths`, else step by step.)
            if not (one_step or (len(known) > 1 and not self.forecasts_paths)):
                between = self.interpolates_times and len(known) > 1
                raise InputError(
                    f"horizon: this model was trained to forecast {few_numbers(known)} ahead"
                    f"{' and at times between these' if between else ''}, from frames "
                    f"{facts.frame_time:g} apart, and can forecast no other times; train it for "
                    "these times or for one frame step, or use a model that reads the horizon, "
                    "such as set-flow."
                )
        return rollout(self.forecast, graph)

    def _shaped(self, forecast: Forecast, graph: SpacetimeGraph) -> Forecast:
        """The forecast, if it has a time axis, which user-defined models may forget."""
        (B, _, N, n), T = graph.x.shape, graph.horizon.shape[1]
        for name in ("x", "v"):
            found = getattr(forecast, name).shape
            if not torch.compiler.is_compiling() and found != (B, T, N, n):
                raise InputError(
                    f"forecast: {type(self).__name__} returns {name} of shape {tuple(found)}, "
                    f"expected (B, T, N, n) = {(B, T, N, n)}."
                )
        return forecast

    def at(self, graph: SpacetimeGraph, times: Tensor | list[float] | float) -> Forecast:
        """Forecasts at other times than the graph's horizon, such as a whole path.

        Args:
            graph: L frames of N nodes.
            times: measured from the last frame, increasing, (T,) for all graphs or (B, T).
        """
        self.check(graph)
        graph = with_times(graph, times)
        known = self.reads_horizon or (self.forecasts_paths and self._was_trained_for(graph))
        return self(graph) if known else self._step_by_step(graph)

    def _was_trained_for(self, graph: SpacetimeGraph) -> bool:
        """Whether the graph's target times are those of training, as far as is known."""
        if self.trained_on is None:
            return True
        trained = graph.horizon.new_tensor(self.trained_on.horizon_times)
        same = trained.shape == graph.horizon.shape[1:]
        return same and bool(graph.horizon.isclose(trained, rtol=1e-3, atol=0.0).all())

    def check(self, graph: SpacetimeGraph) -> None:
        """Refuse anything but a graph with the model's dtype and device."""
        if not isinstance(graph, SpacetimeGraph):
            raise InputError(
                f"graph: expected a SpacetimeGraph, found {type(graph).__name__}; build one with "
                "SpacetimeGraph(x, v) or one of its builders."
            )
        parameter = next(self.parameters(), None)
        if parameter is not None:
            for what in ("dtype", "device"):
                ours, theirs = getattr(parameter, what), getattr(graph.x, what)
                if ours != theirs:
                    raise InputError(
                        f"graph: its {what} is {theirs}, the model's is {ours}; "
                        f"use graph.to({ours!r}) or model.to({theirs!r})."
                    )


@functools.cache
def _hints(init: Any) -> dict[str, Any]:
    """The types of a constructor's arguments; none if an annotation cannot be resolved."""
    try:
        return get_type_hints(init, include_extras=True)
    except (NameError, TypeError):
        return {}


class ClosedForm(Forecaster):
    """A model whose weights are solved for in closed form instead of being trained."""

    def solve(self, train: Examples, val: Examples) -> float:
        """Set the weights.

        Args:
            train, val: batches of graphs and their targets: to fit, and to choose penalties with.
        Returns: the mean squared position error on `val`.
        """
        raise NotImplementedError(f"{type(self).__name__}: implement `solve`.")
