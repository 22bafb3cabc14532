"""Presentation of results: figures, animations, tables, the demo.

``scene`` is a motion with forecasts for it, ``drawing`` draws it, ``animation`` animates it,
``plots`` has the other figures, ``tables`` prints to a terminal, ``demo`` trains and compares a few
small models. Imports runs and every subpackage below.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
