"""Trajectories: simulated, measured, stored, cut into windows.

``trajectories`` holds runs, ``windows`` cuts them, ``task`` splits them; ``readers`` and
``writers`` are for files, ``simulation`` makes data, ``datasets`` has those with a name. Imports
graphs and geometry; knows nothing of models.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
