from .config import Config as Config
from .prediction import predict as predict
from .run import Run as Run
from .training import train as train
