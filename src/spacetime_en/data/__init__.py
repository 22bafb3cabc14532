"""Trajectories: simulated or measured, stored, and cut into windows.

``trajectories`` holds runs, ``windows`` cuts them, and ``task`` splits the windows; ``readers`` and
``writers`` handle files, ``simulation`` generates data, and ``datasets`` loads data sets by name.
Imports graphs and geometry; independent of the models.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
