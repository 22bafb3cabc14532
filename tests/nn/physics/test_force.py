"""The law of force between two nodes: sums over pairs, and when two of them could meet."""

import pytest
import torch

from spacetime_en import SpacetimeGraph
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import CHUNK, PairForce, Pairs, shortest_time
from tests.helpers import liven, particles, random_neighbours


def accelerations(force, graph, softening=0.0):
    pairs = Pairs(Neighbourhood.of(graph, graph.box), graph.edge_attr, softening)
    return force(*pairs.differences(graph.x[:, 0]), pairs)


KINDS = {
    "complete": {},
    "lists": {"neighbours": random_neighbours(4, 2)},
    "box": {"box": [3.0] * 3},
    "lists in boxes": {"neighbours": random_neighbours(4, 3, 3), "box": [3.0] * 3},
    "lists that are empty": {"neighbours": torch.full((4, 2), -1)},
}


def learned(kind):
    """A law and graphs of one frame."""
    return liven(PairForce(features=1, hidden=8)).double(), particles(L=1, **KINDS[kind])


@pytest.mark.parametrize("chunk", [5, CHUNK])
@pytest.mark.parametrize("kind", KINDS)
def test_accelerations_are_sums_over_pairs(kind, chunk, monkeypatch):
    monkeypatch.setattr("spacetime_en.nn.physics.force.CHUNK", chunk)
    force, graph = learned(kind)
    with torch.no_grad():
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


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_all_places_at_once(kind, monkeypatch):
    monkeypatch.setattr("spacetime_en.nn.physics.force.CHUNK", 5)  # (which is not for gradients)
    force, graph = learned(kind)
    pairs = Pairs(Neighbourhood.of(graph, graph.box), graph.edge_attr, softening=0.1)
    inputs = [graph.x[:, 0].requires_grad_(), *force.parameters()]

    def gradients():
        a = force(*pairs.differences(inputs[0]), pairs)
        return torch.autograd.grad(a.square().sum(), inputs)

    found = gradients()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(found, gradients(), rtol=1e-12, atol=1e-12)


def test_unused_places_of_lists_are_left_out():
    force, graph = learned("lists")
    seen = []
    force.phi.register_forward_hook(lambda _, inputs, out: seen.append(out.numel()))
    accelerations(force, graph, softening=0.1)
    assert seen == [int(graph.edge_mask.sum())]
    assert seen[0] < graph.edge_mask.numel()


def test_the_shortest_time_is_that_of_the_pair_about_to_meet():
    x = torch.tensor([[[0.0, 0], [3, 0], [3, 1]]], dtype=torch.float64)
    v = torch.tensor([[[0.0, 0], [-6, 0], [0, 0]]], dtype=torch.float64)
    graph = SpacetimeGraph(x[:, None], v[:, None], edge_attr=torch.ones(3, 3, 1))
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
    rest = torch.zeros_like(x)

    def shortest(v, a, pairs=pairs):
        _, r = pairs.differences(x)
        return shortest_time(r, v, a, pairs).tolist()

    assert shortest(v, rest) == pytest.approx([1 / 6])
    assert shortest(rest, 400 * v) == pytest.approx([(1 / 2400) ** 0.5])
    assert shortest(rest, rest)[0] > 1e9  # nothing moves
    # As forces see them, nodes are never nearer than the softening.
    assert shortest(v, rest, pairs._replace(softening=3.0)) == pytest.approx([10**0.5 / 6])


def test_the_slope_of_the_potential_is_the_force():
    force, _ = learned("complete")
    r = torch.logspace(-2, 1, 40, dtype=torch.float64)[:, None].requires_grad_()
    s = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    (slope,) = torch.autograd.grad(force.potential(r, s).sum(), r)
    strength = force.strength(r, s)
    assert strength.abs().max() > 0.1
    torch.testing.assert_close(-slope, strength, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("softening", [1e-3, 0.3])
def test_accelerations_are_the_slope_of_the_energy_of_all_pairs(softening):
    force, graph = learned("complete")
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening)
    x = graph.x[:, 0].clone().requires_grad_()
    _, r = pairs.differences(x)
    counts = pairs.neighbourhood.mask.unsqueeze(-1)
    energy = force.potential(torch.where(counts, r, 1.0), pairs.s)[counts].sum() / 2
    (slope,) = torch.autograd.grad(energy, x)
    expected = accelerations(force, graph, softening)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(-slope, expected, rtol=1e-7, atol=1e-7)
