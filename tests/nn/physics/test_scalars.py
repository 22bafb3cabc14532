"""Invariant scalars of pairs: messages as in a plain loop."""

import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.scalars import PairScalars
from tests.helpers import liven, particles, random_neighbours


def test_scalars_are_those_of_a_plain_loop():
    graph = particles(L=1, B=2, neighbours=random_neighbours(4, 2))
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
    torch.manual_seed(0)
    network = liven(PairScalars(invariants=1, hidden=8, layers=2, outputs=2)).double()
    found = network(pairs, graph.edge_attr)
    for b in range(2):
        edges = [
            (i, k, int(graph.neighbours[b, 0, i, k]))
            for i in range(4)
            for k in range(2)
            if graph.neighbours[b, 0, i, k] >= 0
        ]
        s = {(i, k): graph.edge_attr[b, 0, i, k] for i, k, _ in edges}
        h = [torch.zeros(8, dtype=torch.float64)] * 4
        for phi_e, phi_h in zip(network.phi_e, network.phi_h, strict=True):
            m = [torch.zeros(8, dtype=torch.float64) for _ in range(4)]
            for i, k, j in edges:
                m[i] = m[i] + phi_e(torch.cat([h[i], h[j], s[i, k]]))
            h = [h[i] + phi_h(torch.cat([h[i], m[i]])) for i in range(4)]
        for i, k, j in edges:
            wanted = network.phi(torch.cat([h[i], h[j], s[i, k]]))
            torch.testing.assert_close(found[b, 0, i, k], wanted)


def test_new_scalars_are_zero():
    graph = particles(L=1)
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
    network = PairScalars(invariants=1, hidden=8, layers=1).double()
    assert not network(pairs, graph.edge_attr).any()
