"""Runs: trainings in a folder, and what is done with them.

``config`` says what to train, ``training`` trains it, ``run`` and ``checkpoints`` are the folder
that it leaves, ``search`` looks for good settings, ``prediction`` and ``export`` use the trained
model. Imports all rooms below; draws nothing.
"""

from typing import TYPE_CHECKING

from spacetime_en._util.lazy import attach

if TYPE_CHECKING:
    from spacetime_en.runs.config import Config as Config
    from spacetime_en.runs.prediction import predict as predict
    from spacetime_en.runs.run import Run as Run
    from spacetime_en.runs.training import train as train

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"config": ["Config"], "prediction": ["predict"], "run": ["Run"], "training": ["train"]},
)
