"""The registry of models: the rows of the paper's tables, and ours."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.schema import PositiveInt, checked
from spacetime_en._util.trust import named_object
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.layers.adjacency import TIED_TO_NODES
from spacetime_en.nn.models.body import Body
from spacetime_en.nn.models.egnn import EGNNForecaster
from spacetime_en.nn.models.estag import ESTAG
from spacetime_en.nn.models.flow import Flow
from spacetime_en.nn.models.hamiltonian import Hamiltonian, PairHamiltonian
from spacetime_en.nn.models.kernel import Kernel
from spacetime_en.nn.models.lagrangian import Lagrangian
from spacetime_en.nn.models.linear import LinearDynamics
from spacetime_en.nn.models.lstm import LSTM
from spacetime_en.nn.models.mlp import MLP
from spacetime_en.nn.models.ridge import Ridge, SharedRidge
from spacetime_en.nn.models.segno import SecondOrder
from spacetime_en.nn.models.set import SET
from spacetime_en.nn.models.set2 import SET2
from spacetime_en.nn.models.transformer import Transformer
from spacetime_en.nn.models.tree import parents_of
from spacetime_en.nn.models.trivial import LastFrame, LeastSquaresLine, Parabola, StraightLine


class Preset(NamedTuple):
    """A model class and the settings that differ from its defaults."""

    model: type[Forecaster]
    settings: dict[str, Any]


PRESETS = {
    "set-2": Preset(SET2, {}),
    "set": Preset(SET, {}),
    "set-nonequivariant": Preset(SET, {"equivariant": False}),
    "set-adjacency": Preset(SET, {"adjacency": "flattened"}),
    "set-no-temporal": Preset(SET, {"temporal": False}),
    "lstm": Preset(LSTM, {}),
    "egnn": Preset(EGNNForecaster, {}),
    "tfn": Preset(EGNNForecaster, {"spatial": "tfn"}),
    "se3-transformer": Preset(EGNNForecaster, {"spatial": "se3-transformer"}),
    "mlp": Preset(MLP, {}),
    "linear": Preset(LinearDynamics, {}),
    "last-frame": Preset(LastFrame, {}),
    "straight-line": Preset(StraightLine, {}),
    "parabola": Preset(Parabola, {}),
    "least-squares-line": Preset(LeastSquaresLine, {}),
    "set-flow": Preset(Flow, {}),
    "hnn-pairs": Preset(PairHamiltonian, {}),
    "hnn": Preset(Hamiltonian, {}),
    "lnn": Preset(Lagrangian, {}),
    "segno": Preset(SecondOrder, {}),
    "estag": Preset(ESTAG, {}),
    "transformer": Preset(Transformer, {}),
    "body": Preset(Body, {}),
    "ridge": Preset(Ridge, {}),
    "ridge-shared": Preset(SharedRidge, {}),
    "kernel": Preset(Kernel, {}),
}


@checked
def build_model(
    preset: str,
    *,
    nodes: PositiveInt | None = None,
    like: SpacetimeGraph | None = None,
    **settings: Any,
) -> Forecaster:
    """Build a model by the name of its preset.

    Args:
        preset: a key of ``PRESETS``, or the import path of your own class.
        nodes: N, needed only by models tied to it, ignored by the others.
        like: a graph from which to take d, e, n, L, N and T, the tree of its bones, and whether it
            has an ``up``, as far as the model depends on them.
        settings: arguments of the model's class, which override the preset's.
    """
    model, defaults = find_preset(preset)
    parameters = arguments_of(model)
    if unknown := set(settings) - set(parameters):
        accepted = ", ".join(sorted(parameters)) or "none"
        raise InputError(
            f"{min(unknown)}: not a setting of preset {preset!r}, whose settings are: {accepted}."
        )
    sizes: dict[str, Any] = {}
    if like is not None:
        sizes = {
            "features": like.feature_width,
            "edge_features": like.edge_width,
            "dims": like.x.shape[-1],
            "nodes": like.x.shape[2],
            "frames": like.x.shape[1],
            "node_features": 0 if like.features is None else like.feature_width,
            "up": like.up is not None,
            "targets": like.horizon.shape[1],
        }
        if "parents" in parameters and like.edge_attr is not None and like.neighbours is None:
            sizes["parents"] = parents_of(like.edge_attr[0, 0, ..., 0])
    if nodes is not None:
        sizes["nodes"] = nodes
    sizes = {name: size for name, size in sizes.items() if name in parameters}
    arguments = sizes | defaults | settings
    required = "nodes" in parameters and parameters["nodes"].default is inspect.Parameter.empty
    adjacency = arguments.get("adjacency")
    tied = isinstance(adjacency, str) and adjacency in TIED_TO_NODES
    needs_nodes = required or tied or bool(arguments.get("named"))
    if needs_nodes and "nodes" not in arguments:
        raise InputError(f"nodes: preset {preset!r} is tied to the number of nodes; pass nodes=N.")
    if preset in PRESETS and not needs_nodes:
        arguments.pop("nodes", None)
    return model(**arguments)


def arguments_of(model: type[Forecaster]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a model's constructor, its own or inherited."""
    return {} if model.__init__ is nn.Module.__init__ else inspect.signature(model).parameters


def find_preset(name: str, *, trust: bool = True) -> Preset:
    """A preset by name, or a subclass of Forecaster by its import path, ``package.Class``.

    Args:
        name: of the preset, or the import path.
        trust: whether a module may be imported, which executes its code.
    """
    if name in PRESETS:
        return PRESETS[name]
    if "." not in name and ":" not in name:
        raise no_such("preset", name, PRESETS)
    model = named_object(name, trust=trust)
    if not (isinstance(model, type) and issubclass(model, Forecaster)):
        raise InputError(f"{name}: expected a subclass of spacetime_en.Forecaster.")
    return Preset(model, {})
