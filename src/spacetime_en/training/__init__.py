"""Training: one Lightning module for every model."""

from spacetime_en.errors import Interrupted
from spacetime_en.training.fit import fit
from spacetime_en.training.module import DivergenceError, ForecastModule, Progress, State
from spacetime_en.training.settings import PAPER, TrainingSettings

__all__ = [
    "PAPER",
    "DivergenceError",
    "ForecastModule",
    "Interrupted",
    "Progress",
    "State",
    "TrainingSettings",
    "fit",
]
