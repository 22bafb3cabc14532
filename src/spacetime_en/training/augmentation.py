"""Data turned at random, for models that do not know that all directions are alike.

If the law behind the data is equivariant under O(n), then a window turned by Q in O(n) is as likely
as the window itself, and its target is turned along:

    (x, v)(t)  ->  (Qx, Qv)(t),      det Q = 1 or -1.

A model that sees other turns in every step of training learns the symmetry from data. An
equivariant one has the same loss at every Q, and nothing to learn from it. Translations are left
out: every model here can take positions about a centroid.
"""

from __future__ import annotations

from spacetime_en.geometry import random_orthogonal
from spacetime_en.graph import Forecast, SpacetimeGraph


def augmented(graph: SpacetimeGraph, target: Forecast) -> tuple[SpacetimeGraph, Forecast]:
    """Windows and their targets, each turned by a Q of its own, uniform on O(n).

    All vectors turn, the box and ``up`` too: about what data call up, nothing is assumed. Times,
    masks, and attributes of nodes and edges stay. Q is drawn with torch's default generator.
    """
    q = random_orthogonal(graph.x.shape[-1], count=len(graph))  # (B, n, n)
    return graph.rotate(q), target.rotate(q)
