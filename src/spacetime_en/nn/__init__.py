"""Models: what they are made of, what they have in common, and their names.

``forecaster`` is the base class of all of them, ``presets`` the list, ``models`` one file each;
``layers`` and ``physics`` are their parts. Imports graphs, geometry and metrics; knows nothing of
data sets and training.
"""
