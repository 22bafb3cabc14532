"""What several tests of models are about: a known law of force, moving bodies."""

import torch

from spacetime_en import SpacetimeGraph, build_model
from spacetime_en.nn.physics.force import PairForce
from tests.helpers import liven, particles

#        0 root, two legs of two bones, a neck and a head with two ears
PARENTS = [0, 0, 1, 0, 3, 0, 5, 5]
MIRROR = [0, 3, 4, 1, 2, 5, 7, 6]
UP = [0.0, 1.0, 0.0]


class Law(PairForce):
    """Coulomb's, in place of a learned one."""

    def __init__(self):
        super().__init__(features=1, hidden=4)

    def strength(self, r, s):
        return s / r.square()


def flow(law=True, **settings):
    torch.manual_seed(0)
    model = build_model("set-flow", **{"hidden": 8} | settings)
    if law:
        model.force = Law()
    return liven(model).double().eval()


def far_apart(**sizes):
    """Particles of equal charge: they never meet."""
    graph = particles(**sizes)
    return graph.replace(edge_attr=torch.ones_like(graph.edge_attr[:, 0]))


def bodies(B=6, L=5, seed=0, up=True, dtype=torch.float64):
    """Moving joints on a tree of bones, (B, L, 8, 3)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(B, L, 8, 3, generator=g, dtype=torch.float64).cumsum(1)
    bones = torch.zeros(8, 8, 1)
    for child, parent in enumerate(PARENTS):
        if child != parent:
            bones[child, parent] = bones[parent, child] = 1
    options = {"up": UP} if up else {}
    return SpacetimeGraph.from_positions(x.to(dtype), edge_attr=bones, horizon=2.0, **options)
