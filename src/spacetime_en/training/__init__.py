"""Training: one Lightning module for every model.

``fitting`` trains a model on a task, ``module`` defines a step, ``trainer`` runs the steps,
``settings`` configures them, ``state`` is the content of a checkpoint. Imports models, data and
their evaluation; independent of folders and configs.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
