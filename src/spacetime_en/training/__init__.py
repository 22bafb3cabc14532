"""Training: one Lightning module for every model.

``fitting`` trains a model on a task, ``module`` is one step, ``settings`` says how. Imports models,
data and their evaluation; knows nothing of folders and configs.
"""

from typing import TYPE_CHECKING

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en.training.fitting import fit as fit
    from spacetime_en.training.module import DivergenceError as DivergenceError
    from spacetime_en.training.module import ForecastModule as ForecastModule
    from spacetime_en.training.module import Progress as Progress
    from spacetime_en.training.module import State as State
    from spacetime_en.training.settings import PAPER as PAPER
    from spacetime_en.training.settings import TrainingSettings as TrainingSettings

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "fitting": ["fit"],
        "module": ["DivergenceError", "ForecastModule", "Progress", "State"],
        "settings": ["PAPER", "TrainingSettings"],
    },
)
