from .fitting import fit as fit
from .module import ForecastModule as ForecastModule
from .settings import PAPER as PAPER
from .settings import TrainingSettings as TrainingSettings
from .state import DivergenceError as DivergenceError
from .state import TrainingProgress as TrainingProgress
from .state import TrainingState as TrainingState
