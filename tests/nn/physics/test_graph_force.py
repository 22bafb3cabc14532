"""A force of many bodies: graph convolutions as in a plain loop."""

import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.graph_force import GraphForce
from tests.helpers import liven, particles


def test_accelerations_are_those_of_a_plain_loop():
    graph = particles(L=1, B=2)
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening=0.1)
    torch.manual_seed(0)
    force = liven(GraphForce(features=1, hidden=8, layers=2)).double()
    found = force(*pairs.differences(graph.x[:, 0]), pairs)
    for b in range(2):
        x, h, a = graph.x[b, 0], [force.h] * 4, torch.zeros(4, 3, dtype=torch.float64)
        for layer in force.layers:
            m = [torch.zeros(8, dtype=torch.float64) for _ in range(4)]
            for i in range(4):
                for j in range(4):
                    if j == i:
                        continue
                    d = x[i] - x[j]
                    r = (d.square().sum() + 0.01).sqrt()
                    s = torch.cat([r.log()[None], graph.edge_attr[b, 0, i, j]])
                    m_ij = layer.phi_e(torch.cat([h[i], h[j], s]))
                    m[i] = m[i] + m_ij
                    a[i] = a[i] + d / r * layer.phi_x(m_ij)
            if layer is not force.layers[-1]:
                h = [h[i] + layer.phi_h(torch.cat([h[i], m[i]])) for i in range(4)]
        torch.testing.assert_close(found[b], a)
