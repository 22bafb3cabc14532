"""Data sets with a name, one file each.

Each is a :class:`~spacetime_en.data.datasets.dataset.DataSet` with a method ``load`` that makes a
task of its settings; ``registry`` lists them. Imports the rest of ``data``.
"""
