"""Models: their base class, their parts and the registry of their names.

``forecaster`` holds the base class and ``presets`` the registry; ``models`` has one file for each
model, made of ``layers`` and ``physics``. This package imports graphs, geometry and metrics, and
knows nothing of data sets and training.
"""
