"""Random rotations and reflections of the data, for models without rotational symmetry.

If the law behind the data is equivariant under O(n), then a window transformed by Q in O(n) is as
likely as the window itself, and its target transforms with it:

    (x, v)(t)  ->  (Qx, Qv)(t),      det Q = 1 or -1.

A model that sees a new Q in every training step learns the symmetry from data. An equivariant one
has the same loss at every Q, and so nothing to learn from it. Translations are left out: every
model here can take positions relative to a centroid.
"""

from __future__ import annotations

from spacetime_en.geometry import random_orthogonal
from spacetime_en.graph import Forecast, SpacetimeGraph


def augmented(graph: SpacetimeGraph, target: Forecast) -> tuple[SpacetimeGraph, Forecast]:
    """Windows and their targets, each transformed by its own Q, uniform on O(n).

    All vectors are transformed, including the box and ``up``: no direction is assumed to be
    special. Times, masks, and attributes of nodes and edges stay the same. Q is drawn with torch's
    default generator.
    """
    q = random_orthogonal(graph.x.shape[-1], count=len(graph))  # (B, n, n)
    return graph.rotate(q), target.rotate(q)
