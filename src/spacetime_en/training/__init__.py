"""Training: one Lightning module for every model.

``fitting`` trains a model on a task, ``module`` defines a step, ``trainer`` runs the steps,
``settings`` says how, ``state`` is what a checkpoint holds. Imports models, data and their
evaluation; knows nothing of folders and configs.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
