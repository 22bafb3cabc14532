"""Runs: trainings in a folder, and what is done with them.

``config`` says what to train, ``training`` trains it, ``run`` and ``checkpoints`` are the folder
that it leaves, ``search`` looks for good settings in a ``study``, ``prediction`` and ``export`` use
the trained model. Imports all rooms below; draws nothing.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
