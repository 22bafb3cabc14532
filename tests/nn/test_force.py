"""The law of force between two nodes: sums over pairs, and when two of them could meet."""

import pytest
import torch

from spacetime_en import SpacetimeGraph
from spacetime_en.nn.force import PairForce, Pairs, shortest_time
from spacetime_en.nn.neighbourhood import Neighbourhood
from tests.helpers import liven, particles, random_neighbours


def accelerations(force, graph, softening=0.0):
    pairs = Pairs(Neighbourhood.of(graph, graph.box), graph.edge_attr, softening)
    return force(graph.x[:, 0], pairs)


@pytest.mark.parametrize("kind", [{}, {"neighbours": random_neighbours(4, 2)}, {"box": [3.0] * 3}])
def test_accelerations_are_sums_over_pairs(kind):
    graph = particles(L=1, **kind)
    force = liven(PairForce(numbers=1, hidden=8)).double()
    found = accelerations(force, graph, softening=0.1)
    B, _, N, n = graph.x.shape
    for b in range(B):
        for i in range(N):
            a = torch.zeros(n, dtype=torch.float64)
            for k in range(graph.edge_attr.shape[3]):
                j = k if graph.neighbours is None else int(graph.neighbours[b, 0, i, k])
                if j in (-1, i):
                    continue
                d = graph.x[b, 0, i] - graph.x[b, 0, j]
                d = d if graph.box is None else d - 3 * (d / 3).round()
                r = (d.square().sum() + 0.01).sqrt()
                numbers = torch.cat([r.log()[None], graph.edge_attr[b, 0, i, k]])
                a += d / r * force.phi(numbers).sinh()
            torch.testing.assert_close(found[b, i], a, rtol=1e-12, atol=1e-12)


def test_the_shortest_time_is_that_of_the_pair_about_to_meet():
    x = torch.tensor([[[0.0, 0], [3, 0], [3, 1]]], dtype=torch.float64)
    v = torch.tensor([[[0.0, 0], [-6, 0], [0, 0]]], dtype=torch.float64)
    graph = SpacetimeGraph(x[:, None], v[:, None], edge_attr=torch.ones(3, 3, 1))
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
    rest = torch.zeros_like(x)
    assert shortest_time(x, v, rest, pairs).item() == pytest.approx(1 / 6)
    assert shortest_time(x, rest, 400 * v, pairs).item() == pytest.approx((1 / 2400) ** 0.5)
    assert shortest_time(x, rest, rest, pairs).item() > 1e9  # nothing moves
    # As forces see them, nodes are never nearer than the softening: of all graphs, or of each.
    soft = pairs._replace(softening=3.0)
    assert shortest_time(x, v, rest, soft).item() == pytest.approx(10**0.5 / 6)
    twice = pairs._replace(softening=torch.tensor([3.0])).select(torch.tensor([0, 0]))
    both = shortest_time(*(t.repeat(2, 1, 1) for t in (x, v, rest)), twice)
    assert both.tolist() == pytest.approx([10**0.5 / 6] * 2)
