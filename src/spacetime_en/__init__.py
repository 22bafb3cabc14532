"""Equivariant forecasting of moving point clouds: the Spacetime E(n)-Transformer.

A :class:`SpacetimeGraph` goes in, L observed frames of N nodes; a :class:`Forecast` comes out,
positions and velocities of every node at the horizon.

Names are imported when they are first used: PyTorch takes seconds, in which the command must
already know what to do about Ctrl-C.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spacetime_en.collation import collate
    from spacetime_en.errors import InputError
    from spacetime_en.graph import Forecast, SpacetimeGraph
    from spacetime_en.nn.baselines import (
        MLP,
        EGNNForecaster,
        LastFrame,
        LeastSquaresLine,
        LinearDynamics,
        StraightLine,
    )
    from spacetime_en.nn.etal import AttentionMaps
    from spacetime_en.nn.forecaster import Forecaster, Symmetries
    from spacetime_en.nn.lstm import LSTM
    from spacetime_en.nn.presets import PRESETS, build_model
    from spacetime_en.nn.set import SET

    __version__: str

_HOMES = {
    "LSTM": "nn.lstm",
    "MLP": "nn.baselines",
    "PRESETS": "nn.presets",
    "SET": "nn.set",
    "AttentionMaps": "nn.etal",
    "EGNNForecaster": "nn.baselines",
    "Forecast": "graph",
    "Forecaster": "nn.forecaster",
    "InputError": "errors",
    "LastFrame": "nn.baselines",
    "LeastSquaresLine": "nn.baselines",
    "LinearDynamics": "nn.baselines",
    "SpacetimeGraph": "graph",
    "StraightLine": "nn.baselines",
    "Symmetries": "nn.forecaster",
    "build_model": "nn.presets",
    "collate": "collation",
}

__all__ = [
    "LSTM",
    "MLP",
    "PRESETS",
    "SET",
    "AttentionMaps",
    "EGNNForecaster",
    "Forecast",
    "Forecaster",
    "InputError",
    "LastFrame",
    "LeastSquaresLine",
    "LinearDynamics",
    "SpacetimeGraph",
    "StraightLine",
    "Symmetries",
    "build_model",
    "collate",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("spacetime-en")
    elif name in _HOMES:
        value = getattr(import_module(f"spacetime_en.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'spacetime_en' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
