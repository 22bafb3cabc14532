"""Runs: trainings in a folder, and what can be done with them.

``config`` specifies a training, ``training`` runs it, ``run`` and ``checkpoints`` are the folder
it leaves, ``search`` looks for good settings in a ``study``, ``prediction`` and ``export`` use the
trained model. Imports all subpackages below; draws nothing.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
