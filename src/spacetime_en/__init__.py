"""Equivariant forecasting of moving point clouds: the Spacetime E(n)-Transformer.

A :class:`SpacetimeGraph` goes in, L observed frames of N nodes; a :class:`Forecast` comes out,
positions and velocities of every node at the horizon.

Names are imported when they are first used, so that ``import spacetime_en`` is fast and the command
line can handle Ctrl-C while PyTorch is imported.
"""

from typing import TYPE_CHECKING, Any

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en._util.errors import InputError as InputError
    from spacetime_en.collation import collate as collate
    from spacetime_en.data.datasets.registry import load_task as load_task
    from spacetime_en.data.simulation.simulator import simulate as simulate
    from spacetime_en.data.task import Task as Task
    from spacetime_en.data.trajectories import Trajectories as Trajectories
    from spacetime_en.evaluation import evaluate as evaluate
    from spacetime_en.geometry import Symmetries as Symmetries
    from spacetime_en.graph import Forecast as Forecast
    from spacetime_en.graph import SpacetimeGraph as SpacetimeGraph
    from spacetime_en.nn.forecaster import Forecaster as Forecaster
    from spacetime_en.nn.layers.etal import AttentionMaps as AttentionMaps
    from spacetime_en.nn.models.body import Body as Body
    from spacetime_en.nn.models.egnn import EGNNForecaster as EGNNForecaster
    from spacetime_en.nn.models.ensemble import FlowEnsemble as FlowEnsemble
    from spacetime_en.nn.models.estag import ESTAG as ESTAG
    from spacetime_en.nn.models.flow import Flow as Flow
    from spacetime_en.nn.models.kernel import Kernel as Kernel
    from spacetime_en.nn.models.linear import LinearDynamics as LinearDynamics
    from spacetime_en.nn.models.lstm import LSTM as LSTM
    from spacetime_en.nn.models.mlp import MLP as MLP
    from spacetime_en.nn.models.ridge import Ridge as Ridge
    from spacetime_en.nn.models.ridge import SharedRidge as SharedRidge
    from spacetime_en.nn.models.set import SET as SET
    from spacetime_en.nn.models.trivial import LastFrame as LastFrame
    from spacetime_en.nn.models.trivial import LeastSquaresLine as LeastSquaresLine
    from spacetime_en.nn.models.trivial import Parabola as Parabola
    from spacetime_en.nn.models.trivial import StraightLine as StraightLine
    from spacetime_en.nn.presets import PRESETS as PRESETS
    from spacetime_en.nn.presets import build_model as build_model
    from spacetime_en.runs.prediction import predict as predict
    from spacetime_en.training.fitting import fit as fit

    __version__: str

_get, __dir__, __all__ = attach(
    __name__,
    {
        "_util.errors": ["InputError"],
        "collation": ["collate"],
        "data.datasets.registry": ["load_task"],
        "data.simulation.simulator": ["simulate"],
        "data.task": ["Task"],
        "data.trajectories": ["Trajectories"],
        "evaluation": ["evaluate"],
        "geometry": ["Symmetries"],
        "graph": ["Forecast", "SpacetimeGraph"],
        "nn.forecaster": ["Forecaster"],
        "nn.layers.etal": ["AttentionMaps"],
        "nn.models.body": ["Body"],
        "nn.models.egnn": ["EGNNForecaster"],
        "nn.models.ensemble": ["FlowEnsemble"],
        "nn.models.estag": ["ESTAG"],
        "nn.models.flow": ["Flow"],
        "nn.models.kernel": ["Kernel"],
        "nn.models.linear": ["LinearDynamics"],
        "nn.models.lstm": ["LSTM"],
        "nn.models.mlp": ["MLP"],
        "nn.models.ridge": ["Ridge", "SharedRidge"],
        "nn.models.set": ["SET"],
        "nn.models.trivial": ["LastFrame", "LeastSquaresLine", "Parabola", "StraightLine"],
        "nn.presets": ["PRESETS", "build_model"],
        "runs.prediction": ["predict"],
        "training.fitting": ["fit"],
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("spacetime-en")
    return _get(name)
