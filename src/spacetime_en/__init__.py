"""Equivariant forecasting of moving point clouds: the Spacetime E(n)-Transformer.

A :class:`SpacetimeGraph` goes in, L observed frames of N nodes; a :class:`Forecast` comes out,
positions and velocities of every node at the horizon.
"""

from importlib.metadata import version

from spacetime_en.collate import collate
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

__version__ = version("spacetime-en")

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
