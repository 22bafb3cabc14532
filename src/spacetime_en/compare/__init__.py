"""Comparisons: which model is best for some data, and the engine that finds out.

``job``, ``results``, ``workers``, ``preload``, ``claims`` and ``display`` are the engine: jobs that
depend on each other, with one JSON file each. ``candidates``, ``budget``, ``models`` and
``judging`` define the jobs of ``spacetime compare``, ``comparison`` plans them, ``leaderboard``
ranks the models, ``table``, ``panel``, ``page`` and ``report`` present the results. Imports report
and every subpackage below.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)  # the names of __init__.pyi
