"""Models: their base class, their parts and the registry of their names.

``forecaster`` holds the base class and ``presets`` the registry; ``models`` has one file for each
model, built from ``layers`` and ``physics``. This package imports graphs, geometry and metrics, but
neither data sets nor training.
"""
