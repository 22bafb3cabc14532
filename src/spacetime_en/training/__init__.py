"""Training: one Lightning module for every model.

``fitting`` trains a model on a task, ``module`` defines a step, ``trainer`` runs the steps,
``settings`` says how, ``state`` is what a checkpoint holds. Imports models, data and their
evaluation; knows nothing of folders and configs.
"""

from typing import TYPE_CHECKING

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en.training.fitting import fit as fit
    from spacetime_en.training.module import ForecastModule as ForecastModule
    from spacetime_en.training.settings import PAPER as PAPER
    from spacetime_en.training.settings import TrainingSettings as TrainingSettings
    from spacetime_en.training.state import DivergenceError as DivergenceError
    from spacetime_en.training.state import TrainingProgress as TrainingProgress
    from spacetime_en.training.state import TrainingState as TrainingState

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "fitting": ["fit"],
        "module": ["ForecastModule"],
        "settings": ["PAPER", "TrainingSettings"],
        "state": ["DivergenceError", "TrainingProgress", "TrainingState"],
    },
)
