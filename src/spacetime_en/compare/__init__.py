"""Comparisons: which model is best for some data, and the engine that finds out.

``job``, ``results``, ``workers``, ``claims`` and ``display`` are the engine: jobs that depend on
each other, with one JSON file each. ``candidates``, ``budget``, ``models`` and ``judging`` are the
jobs of ``spacetime compare``, ``comparison`` plans them, ``leaderboard`` weighs their results,
``table``, ``panel``, ``page`` and ``report`` present them. Imports report and every room below.
"""
