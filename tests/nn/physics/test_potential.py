"""A potential of pairs: its force is its derivative, and opposite on the other node."""

import pytest
import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.potential import PairPotential, value_and_slope
from tests.helpers import liven, particles, random_neighbours


def learned():
    torch.manual_seed(0)
    return liven(PairPotential(features=1, hidden=8)).double()


def test_a_new_potential_has_no_force():
    r = torch.rand(5, 1) + 0.1
    assert not PairPotential(features=1, hidden=8).strength(r, torch.ones(5, 1)).any()


def test_the_slope_is_the_derivative():
    phi = learned().phi
    inputs = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    value, slope = value_and_slope(phi, inputs)
    torch.testing.assert_close(value, phi(inputs))
    (gradient,) = torch.autograd.grad(value.sum(), inputs)
    torch.testing.assert_close(slope.squeeze(1), gradient[:, 0])


@pytest.mark.parametrize("kind", ["complete", "lists", "box"])
def test_accelerations_are_the_gradient_of_the_potential(kind):
    """Also of attributes and lists that are not symmetric, and of bodies of different mass."""
    fields = {"lists": {"neighbours": random_neighbours(4, 2)}, "box": {"box": [3.0] * 3}}
    graph, potential = particles(L=1, **fields.get(kind, {})), learned()
    one_way = torch.rand(graph.edge_attr.shape, dtype=torch.float64)
    mass = torch.rand(3, 4, 1, dtype=torch.float64) + 0.5
    pairs = Pairs(Neighbourhood.of(graph, graph.box), one_way, 0.1, mass)
    x = graph.x[:, 0].requires_grad_()
    x_ij, r = pairs.differences(x)
    total = (potential.potential(r, one_way) * pairs.neighbourhood.mask.unsqueeze(-1)).sum() / 2
    (gradient,) = torch.autograd.grad(total, x)
    a = potential(x_ij, r, pairs)
    torch.testing.assert_close(mass * a, -gradient)
    torch.testing.assert_close((mass * a).sum(1), torch.zeros(3, 3, dtype=torch.float64))


def test_potentials_are_bounded():
    potential = learned()
    with torch.no_grad():
        potential.phi[-1].weight.mul_(1e4)
    r = torch.logspace(-3, 3, 50, dtype=torch.float64)[:, None]
    s = torch.ones_like(r)
    assert potential.potential(r, s).isfinite().all()
    outside = potential.phi(torch.cat([r.log(), s], 1)).abs() > 12
    assert outside.any()
    assert not potential.strength(r, s)[outside].any()
