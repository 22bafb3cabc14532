"""Named data sets, one file each.

Each is a :class:`~spacetime_en.data.datasets.dataset.DataSet` whose method ``load`` builds a task
from its settings; ``registry`` lists them. Imports the rest of ``data``.
"""
