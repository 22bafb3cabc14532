"""Hamiltonian networks: motions are those of the energy that they report, and conserve it."""

import math

import pytest
import torch

from spacetime_en import SpacetimeGraph, build_model
from spacetime_en.testing import assert_equivariant
from tests.helpers import masked, particles
from tests.nn.samples import far_apart, generic, plain_energy

PRESETS = ("hnn-pairs", "hnn")


def learned(preset, **settings):
    model = build_model(preset, **{"hidden": 8, "step_fraction": None} | settings)
    return generic(model)


def energy(model, x, v, like):
    """The energy of nodes at x with velocities v, (B, N, n), as the model reports it."""
    with torch.enable_grad():
        parts = model.energy(like.replace(x=x[:, None], v=v[:, None]))
    return torch.cat([part.flatten(1) for part in parts], dim=1).sum(1)


@pytest.mark.parametrize("preset", PRESETS)
def test_as_built_it_is_the_straight_line(preset):
    graph = particles(horizon=2.0)
    fresh, line = (build_model(name).double()(graph) for name in (preset, "straight-line"))
    torch.testing.assert_close(fresh.x, line.x)
    assert (learned(preset)(graph).x - line.x).abs().max() > 0.01  # livened, something else


@pytest.mark.parametrize("preset", PRESETS)
def test_motions_obey_hamiltons_equations(preset):
    """x' = dH/dp, p' = -dH/dx of the reported energy, with p = m v and masses that differ."""
    graph = particles(L=1, horizon=1e-6).replace(features=torch.rand(3, 1, 4, 2).double())
    model = learned(preset, node_features=2, steps=1)
    x, v = (t[:, 0].clone().requires_grad_() for t in (graph.x, graph.v))
    by_x, by_v = torch.autograd.grad(energy(model, x, v, graph).sum(), (x, v))
    mass = model.log_mass(graph.features[:, 0]).exp()
    assert mass.std() > 0.01
    after = model(graph)
    torch.testing.assert_close((after.x[:, 0] - x) * 1e6, by_v / mass, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close((after.v[:, 0] - v) * 1e6, -by_x / mass, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("preset", "order"), [("hnn-pairs", 2), ("hnn", 4)])
def test_energy_is_conserved_to_the_order_of_the_steps(preset, order):
    graph = far_apart(B=6, L=1, horizon=0.2)
    before = energy(learned(preset), graph.x[:, 0], graph.v[:, 0], graph)
    drifts = []
    for steps in (8, 16):
        after = learned(preset, steps=steps)(graph)
        drifts.append((energy(learned(preset), *after.last, graph) - before).detach().abs())
    kinetic = graph.v.square().sum((1, 2, 3)) / 2
    assert (after.v.square().sum((1, 2, 3)) / 2 - kinetic).abs().median() > 100 * drifts[1].median()
    ratio = float((drifts[0] / drifts[1]).median().log2())
    assert order - 0.4 < ratio < order + 1.4


@pytest.mark.parametrize("preset", PRESETS)
def test_momentum_is_conserved_by_lists_and_attributes_of_one_way(preset):
    one_way = torch.tensor([[1], [2], [3], [-1]])
    graph = SpacetimeGraph(
        *torch.randn(2, 3, 1, 4, 3, dtype=torch.float64),
        neighbours=one_way,
        edge_attr=torch.rand(4, 1, 1),
        features=torch.rand(3, 1, 4, 1),
        horizon=1.0,
    )
    model = learned(preset, node_features=1, steps=4)
    mass = model.log_mass(graph.features[:, 0]).exp()
    after = model(graph)
    assert (after.v - graph.v).abs().max() > 1e-3
    torch.testing.assert_close((mass * after.v[:, 0]).sum(1), (mass * graph.v[:, 0]).sum(1))


@pytest.mark.parametrize(("preset", "steps"), [("hnn-pairs", 200), ("hnn", 40)])
def test_two_bodies_go_round_each_other(preset, steps, monkeypatch):
    """Kepler's problem: on a circle about their centre, once around and a quarter."""
    model = learned(preset, steps=steps)
    if preset == "hnn-pairs":  # U = -1/r
        monkeypatch.setattr(model.force, "strength", lambda r, s: -r.square().reciprocal())
    else:

        def energies(pairs, x, v):
            r = (x[:, 0] - x[:, 1]).norm(dim=-1, keepdim=True)
            return v.square().sum(-1) / 2, -1 / r[:, None]

        monkeypatch.setattr(model, "energies", energies)
    speed = math.sqrt(0.5)
    x = torch.tensor([[[0.5, 0], [-0.5, 0]]], dtype=torch.float64)
    v = torch.tensor([[[0, speed], [0, -speed]]], dtype=torch.float64)
    time = 2 * math.pi * 0.5 / speed
    graph = SpacetimeGraph(x[:, None], v[:, None], edge_attr=torch.ones(2, 2, 1))
    quarter, whole = model.at(graph, [time / 4, time]).x.unbind(1)
    torch.testing.assert_close(whole, x, rtol=0, atol=3e-3)
    torch.testing.assert_close(quarter[0, 0], torch.tensor([0, 0.5]).double(), rtol=0, atol=1e-3)


def test_the_energy_is_that_of_a_plain_loop():
    graph = particles(L=1, B=2)
    model = learned("hnn")
    x, v = graph.x[:, 0], graph.v[:, 0]
    torch.testing.assert_close(energy(model, x, v, graph), plain_energy(model, graph))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_symmetries_hold_with_gaps_features_and_in_boxes(preset):
    model = learned(preset, steps=2)
    assert_equivariant(model, masked())
    assert_equivariant(model, particles(box=[4.0, 5.0, 6.0]))


def test_a_general_energy_depends_on_momenta_and_on_third_bodies():
    graph = particles(L=1, B=1, N=3)
    model = learned("hnn")
    _, potential = model.energy(graph)
    faster = graph.replace(v=graph.v * torch.tensor([1.0, 1.0, 3.0])[:, None])
    away = graph.replace(x=graph.x + torch.tensor([0.0, 0.0, 2.0])[:, None])
    for changed in (faster, away):
        _, other = model.energy(changed)
        assert (other - potential)[0, 0, 1].abs() > 1e-4  # of the first two
    pairs = learned("hnn-pairs")
    assert torch.equal(pairs.energy(graph)[1][0, 0, 1], pairs.energy(away)[1][0, 0, 1])
