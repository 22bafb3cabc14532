"""Results for people: figures, animations, tables, the demo.

``plots`` draws with matplotlib, ``scene`` and ``animation`` show forecasts in motion, ``tables``
prints to a terminal, ``demo`` trains and compares three small models. Imports runs and every room
below.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
