"""Data shared by tests of models: a known law of force, moving bodies."""

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


def generic(model, seed=0):
    """Give a law of motion weights of all parts, and forces that short steps can follow."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            inputs = p.shape[-1] if p.ndim > 1 else 4
            p.copy_(1.5 * inputs**-0.5 * torch.randn(p.shape, generator=g))
            if ".phi.4." in name:
                p.mul_(0.3)
    return model.double().eval()


def plain_energy(model, graph):
    """The energy of a Hamiltonian network of one layer, in loops over the nodes of one frame."""
    totals = []
    for b in range(len(graph)):
        x, v, a = graph.x[b, 0], graph.v[b, 0], graph.edge_attr[b, 0]
        N, network = len(x), model.scalars
        s, h = {}, torch.zeros(N, network.hidden, dtype=x.dtype)
        others = [(i, j) for i in range(N) for j in range(N) if i != j]
        for i, j in others:
            r = ((x[i] - x[j]).square().sum() + model.curriculum.softening[1] ** 2).sqrt()
            radial = ((x[i] - x[j]) * (v[i] - v[j])).sum() / r
            square = (v[i] - v[j]).square().sum()
            s[i, j] = torch.cat([torch.stack([r.log(), radial.asinh(), square.log1p()]), a[i, j]])
        (phi_e,), (phi_h,) = network.phi_e, network.phi_h
        m = torch.zeros_like(h)
        for i, j in others:
            m[i] = m[i] + phi_e(torch.cat([h[i], h[j], s[i, j]]))
        h = torch.stack([h[i] + phi_h(torch.cat([h[i], m[i]])) for i in range(N)])
        u = sum(network.phi(torch.cat([h[i], h[j], s[i, j]])).sinh() for i, j in others)
        totals.append(v.square().sum() / 2 + u.squeeze() / 2)
    return torch.stack(totals)
