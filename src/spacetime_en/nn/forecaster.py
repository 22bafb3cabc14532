"""What every model is: a map from SpacetimeGraph to Forecast that knows its own symmetries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    get_type_hints,
    overload,
)

import torch
from torch import Tensor, nn

from spacetime_en.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import errors
from spacetime_en.nn.etal import AttentionMaps
from spacetime_en.nn.state import Units
from spacetime_en.pretrained import Pretrained
from spacetime_en.schema import arguments

if TYPE_CHECKING:
    from spacetime_en.data.facts import DataFacts


class Symmetries(NamedTuple):
    """Under which group actions a model is equivariant, whatever its weights.

    Args:
        translation: x -> x + b moves the forecast along and leaves its velocities.
        rotation: Q in O(n), reflections included, turns positions and velocities along.
        permutation: relabelling nodes relabels the forecast.
    """

    translation: bool
    rotation: bool
    permutation: bool


FULL_SYMMETRY = Symmetries(translation=True, rotation=True, permutation=True)
NAMED_NODES = FULL_SYMMETRY._replace(permutation=False)  # such as the joints of a body


Example = tuple[SpacetimeGraph, Forecast]  # windows and their targets
Examples = Iterable[Example]


class Forecaster(Pretrained, nn.Module):
    """Base class of all models; subclass it to give your own the same signature.

    A subclass implements :meth:`forecast` and :attr:`symmetries`. The arguments of its
    constructor are held against their types, and recorded in ``config``, so that it can be saved
    and loaded; ``settings`` holds those of its base classes as well. ``trained_on`` says what it
    has seen, once it is trained.
    """

    reads_horizon: ClassVar[bool] = False  # and may so be asked for any
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
                f"{cls.__name__}.__init__: {min(taken)} is a word of model files; call the "
                "argument something else."
            )

        @functools.wraps(init)
        def recording_init(self: Any, *args: Any, **kw: Any) -> None:
            bound = signature.bind(self, *args, **kw)
            bound.apply_defaults()
            bound.arguments.update(arguments(bound.arguments, _hints(init)))
            _, *own = bound.arguments.items()
            if "config" not in vars(self):  # the outermost class: its arguments fix its bases'
                object.__setattr__(self, "config", dict(own))
            # What a base class reads of itself are its own arguments, not a subclass's.
            object.__setattr__(self, "settings", vars(self).get("settings", {}) | dict(own))
            init(*bound.args, **bound.kwargs)

        cls.__init__ = recording_init  # type: ignore[method-assign]

    @property
    def symmetries(self) -> Symmetries:
        """The symmetries that hold for all weights of this architecture."""
        raise NotImplementedError(f"{type(self).__name__}: implement the property `symmetries`.")

    @property
    def is_equivariant(self) -> bool:
        """Whether all of the symmetries hold."""
        return all(self.symmetries)

    def forecast(
        self, graph: SpacetimeGraph, return_attention: bool
    ) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
        """The forecast, and one set of attention maps a block (none without attention)."""
        raise NotImplementedError(f"{type(self).__name__}: implement `forecast`.")

    def calibrate(self, train: Example, val: Example) -> None:
        """Measure on windows what a model wants to know and does not learn by gradients.

        Called once, before training. Most models want nothing.

        Args:
            train, val: graphs and their targets, some thousand at most: to measure on, and to
                choose by.
        """

    def anneal(self, used: float) -> bool:
        """Told before every step of a training which share of its budget is used, and 1 after it.

        For models that are trained in stages. Most are not.

        Returns: whether forecasts are made as they will be in the end; until then, validation
            errors do not compete with later ones.
        """
        return True

    def losses(self, graph: SpacetimeGraph, target: Forecast, alpha: float) -> Tensor:
        """What training makes small: Eq. 13 of each graph, (B,), unless a model knows better.

        Args:
            alpha: weight of the velocities.
        """
        return self.distance(self(graph), target, graph.node_mask, alpha)

    def distance(
        self, forecast: Forecast, target: Forecast, node_mask: Tensor | None, alpha: float
    ) -> Tensor:
        """Eq. 13 of each graph, in the model's own units of length and time, (B,)."""
        length, time = (self.settings.get(f"{what}_scale", 1.0) for what in ("length", "time"))
        x, v = errors(forecast, target, node_mask)
        total: Tensor = x / length**2 + alpha * v * (time / length) ** 2
        return total

    def units(self, graph: SpacetimeGraph) -> Units:
        """The units and the origin in which this model sees `graph`."""
        length, time = self.settings["length_scale"], self.settings["time_scale"]
        return Units.of(graph, length, time, centred=self.symmetries.translation)

    @overload
    def __call__(
        self, graph: SpacetimeGraph, return_attention: Literal[False] = False
    ) -> Forecast: ...
    @overload
    def __call__(
        self, graph: SpacetimeGraph, return_attention: Literal[True]
    ) -> tuple[Forecast, tuple[AttentionMaps, ...]]: ...
    def __call__(self, graph: SpacetimeGraph, return_attention: bool = False) -> Any:
        return super().__call__(graph, return_attention)

    def forward(
        self, graph: SpacetimeGraph, return_attention: bool = False
    ) -> Forecast | tuple[Forecast, tuple[AttentionMaps, ...]]:
        """Forecast every node at the target time.

        Args:
            graph: L frames of N nodes.
            return_attention: also return the attention maps, one
                :class:`~spacetime_en.nn.etal.AttentionMaps` a block.
        Returns: the forecast, or (forecast, maps).
        """
        self.check(graph)
        forecast, attention = self.forecast(graph, return_attention)
        return (forecast, attention) if return_attention else forecast

    def check(self, graph: SpacetimeGraph) -> None:
        """Refuse what is no graph, or one of another precision or device than the model."""
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
    """The types of a constructor's arguments; none, if one of them is a name that nobody knows."""
    try:
        return get_type_hints(init, include_extras=True)
    except (NameError, TypeError):
        return {}


class ClosedForm(Forecaster):
    """A model whose best weights are computed, and not trained."""

    def solve(self, train: Examples, val: Examples) -> float:
        """Set the weights.

        Args:
            train, val: graphs and their targets, in batches: to fit, and to choose penalties by.
        Returns: the mean squared position error on `val`.
        """
        raise NotImplementedError(f"{type(self).__name__}: implement `solve`.")


def check_widths(graph: SpacetimeGraph, features: int, edge_features: int) -> None:
    """Refuse a graph whose d or e is not what the model was built for."""
    if graph.feature_width != features:
        raise InputError(
            f"features: the model was built for {features} per node, the graph has "
            f"{graph.feature_width}; build it with features={graph.feature_width} or like=graph."
        )
    if graph.edge_width != edge_features:
        raise InputError(
            f"edge_attr: the model was built for {edge_features} per edge, the graph has "
            f"{graph.edge_width}; build it with edge_features={graph.edge_width} or like=graph."
        )


def check_dims(graph: SpacetimeGraph, dims: int) -> None:
    """Refuse a graph in another number of space dimensions than the model's."""
    n = graph.x.shape[-1]
    if n != dims:
        raise InputError(
            f"x: this model is tied to n = {dims} space dimensions, the graph has {n}; "
            f"build it with dims={n}."
        )


def check_nodes(graph: SpacetimeGraph, nodes: int) -> None:
    """Refuse a graph with another number of nodes than the model's, padded ones included."""
    N = graph.x.shape[2]
    if nodes != N:
        raise InputError(
            f"x: this model is tied to N = {nodes} nodes, the graph has {N}; "
            f"build it with nodes={N}."
        )
    check_no_padding(graph, f"this model is tied to N = {nodes} nodes")


def check_frames(graph: SpacetimeGraph, frames: int) -> None:
    """Refuse a graph with another number of frames than the model's, or with gaps."""
    L = graph.x.shape[1]
    if frames != L or graph.frame_mask is not None:
        gaps = " with gaps" if graph.frame_mask is not None else ""
        raise InputError(
            f"x: this model is tied to {frames} frames, all of them observed, the graph has "
            f"{L}{gaps}; build it with frames={L}."
        )


def check_no_padding(graph: SpacetimeGraph, why: str) -> None:
    """Refuse graphs with padded nodes."""
    # (While tracing, the mask has no values to look at.)
    if graph.node_mask is not None and not torch.compiler.is_compiling():
        counts = graph.node_mask.sum(1)
        if (counts != graph.x.shape[2]).any():
            raise InputError(
                f"node_mask: {why}, but a graph of the batch has {int(counts.min())} of "
                f"{graph.x.shape[2]}."
            )


def check_ahead(graph: SpacetimeGraph) -> None:
    """Refuse a horizon of 0, where velocities are the way over the time."""
    if not torch.compiler.is_compiling() and (graph.horizon == 0).any():
        raise InputError("horizon: this model needs a time ahead, found 0.")


def check_no_box(graph: SpacetimeGraph, what: str) -> None:
    """Refuse a periodic box where it matters in which image a node is stored."""
    if graph.box is not None:
        raise InputError(f"box: {what}, and a periodic box has no centre; leave the box out.")


def check_complete(graph: SpacetimeGraph, what: str) -> None:
    """Refuse neighbour lists where only a complete graph makes sense."""
    if graph.neighbours is not None:
        raise InputError(f"neighbours: {what} needs a complete graph; leave neighbours out.")


def check_static(graph: SpacetimeGraph, what: str) -> None:
    """Refuse neighbour lists that change from frame to frame."""
    if graph.neighbours is not None and graph.neighbours.shape[1] > 1:
        raise InputError(
            f"neighbours: {what} follows each edge over time and needs one list for all frames, "
            "found one per frame."
        )
