"""Lagrangian networks: accelerations solve the equations of the learned Lagrangian."""

import pytest
import torch

from spacetime_en import build_model
from spacetime_en.testing import assert_equivariant
from tests.helpers import masked, particles, random_neighbours
from tests.nn.samples import far_apart, generic


def learned(**settings):
    model = build_model("lnn", **{"hidden": 8, "step_fraction": None, "steps": 2} | settings)
    return generic(model)


def pairs_of(model, graph):
    units = model.units(graph)
    return model._pairs(graph, units, units.normalize(graph))


def lagrangian(model, pairs, x, v):
    """Twice the kinetic energy less the energy: the Lagrangian of what is quadratic in v."""
    at_rest = torch.zeros_like(v)

    def energy(v):
        return sum(part.flatten(1).sum(1) for part in model.energies(pairs, x, v))

    return energy(v) - 2 * energy(at_rest)


KINDS = {
    "complete": {},
    "lists": {"neighbours": random_neighbours(4, 2)},
    "box": {"box": [9.0] * 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_inertia_is_the_second_derivative_by_velocities(kind):
    graph = particles(L=1, B=2, **KINDS[kind]).replace(features=torch.rand(2, 1, 4, 1).double())
    model = learned(node_features=1)
    pairs, x = pairs_of(model, graph), model.units(graph).normalize(graph).x[:, 0]
    v = torch.randn(2, 4, 3, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda v: lagrangian(model, pairs, x, v).sum(), v)
    wanted = torch.einsum(
        "ij,bc,de->bidcje", torch.zeros(4, 4), torch.eye(2), torch.eye(3)
    ).double()
    inertia = model.inertia(pairs, x)
    for b in range(2):
        wanted[b, :, :, b] = torch.einsum("ij,de->idje", inertia[b], torch.eye(3).double())
    torch.testing.assert_close(hessian, wanted)
    assert inertia.diagonal(dim1=1, dim2=2).std() > 1e-3
    assert (torch.linalg.eigvalsh(inertia) >= pairs.mass.amin((1, 2))[:, None] - 1e-12).all()


def test_accelerations_solve_the_euler_lagrange_equations():
    """d/dt dL/dv = dL/dx along a path, by finite differences."""
    graph = particles(L=1, B=2)
    model = learned()
    pairs, x, v = pairs_of(model, graph), graph.x[:, 0], graph.v[:, 0]
    _, a = model.field(pairs, x, v)

    def momenta(h):
        at, speed = x + h * v + h * h / 2 * a, (v + h * a).requires_grad_()
        return torch.autograd.grad(lagrangian(model, pairs, at, speed).sum(), speed)[0]

    at = x.clone().requires_grad_()
    (force,) = torch.autograd.grad(lagrangian(model, pairs, at, v).sum(), at)
    torch.testing.assert_close((momenta(1e-5) - momenta(-1e-5)) / 2e-5, force, rtol=1e-6, atol=1e-6)


def test_energy_and_momentum_are_conserved():
    graph = far_apart(B=4, L=1, horizon=0.4)
    model, drifts = learned(), []

    def energy(x, v):
        state = graph.replace(x=x[:, None], v=v[:, None])
        return sum(part.flatten(1).sum(1) for part in model.energy(state))

    for steps in (8, 16):
        after = learned(steps=steps)(graph)
        drifts.append((energy(*after.last) - energy(graph.x[:, 0], graph.v[:, 0])).detach().abs())
    assert 3.6 < float((drifts[0] / drifts[1]).median().log2()) < 5.4
    torch.testing.assert_close(after.v.sum(2), graph.v.sum(2))
    assert (after.v - graph.v).abs().max() > 0.01


def test_as_built_it_is_the_straight_line():
    graph = particles(horizon=2.0)
    fresh, line = (build_model(name).double()(graph) for name in ("lnn", "straight-line"))
    torch.testing.assert_close(fresh.x, line.x)
    assert (learned()(graph).x - line.x).abs().max() > 0.01


def test_the_symmetries_hold_with_gaps_and_in_boxes():
    assert_equivariant(learned(), masked())
    assert_equivariant(learned(), particles(box=[4.0, 5.0, 6.0]))
