"""Steps: each system takes its own, and their gradients are bounded."""

import subprocess
import sys

import pytest
import torch

from spacetime_en import SpacetimeGraph
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import StepControl, _BoundedGradient, advance
from spacetime_en.nn.physics.leapfrog import Leapfrog
from spacetime_en.testing import assert_equivariant
from tests.helpers import particles, random_neighbours
from tests.nn.samples import Law, flow


def test_systems_do_not_disturb_each_other():
    graph = particles(L=1, B=12, horizon=1.5)
    model = flow(step_fraction=0.2)
    together = model(graph)
    for b in range(len(graph)):
        alone = model(graph[[b]])
        torch.testing.assert_close(together[[b]].x, alone.x, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together[[b]].v, alone.v, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["lists", "masked", "box"])
def test_nor_do_they_with_lists_masks_and_boxes(kind):
    own = torch.stack([random_neighbours(4, 2, seed=s) for s in range(12)])
    graph = {
        "lists": lambda: particles(L=1, B=12, neighbours=own),
        "masked": lambda: particles(L=1, B=12, observed=torch.arange(4) < own[:, :1, :1] + 2),
        "box": lambda: particles(L=1, B=12, box=torch.rand(12, 3, 3) + 3 * torch.eye(3)),
    }[kind]()
    model = flow(law=False, step_fraction=0.3)
    together = model(graph.replace(horizon=torch.linspace(0, 3, 12)))
    for b in range(12):
        alone = model(graph[[b]].replace(horizon=3 * b / 11))
        torch.testing.assert_close(together[[b]].x, alone.x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step_fraction", [None, 0.1])
def test_flows_of_large_systems_go_in_chunks_and_stay_equivariant(step_fraction, monkeypatch):
    lists = random_neighbours(12, 6)
    graph = particles(L=1, B=2, N=12, neighbours=lists, box=[4.0, 5.0, 6.0], horizon=0.5)
    model = flow(law=False, step_fraction=step_fraction)
    whole = model(graph)
    monkeypatch.setattr("spacetime_en.nn.physics.force.CHUNK", 7)
    with torch.no_grad():
        torch.testing.assert_close(model(graph).x, whole.x, rtol=0, atol=1e-9)
    assert_equivariant(model, graph)


@pytest.mark.parametrize("step_fraction", [None, 0.1])
@pytest.mark.parametrize("lists", [False, True])
def test_what_is_computed_again_in_the_backward_pass_changes_nothing(
    step_fraction, lists, monkeypatch
):
    """On the way to several target times; attributes of edges have gradients, too."""
    neighbours = random_neighbours(6, 3) if lists else None
    graph = particles(L=1, B=3, N=6, neighbours=neighbours)
    graph = graph.replace(horizon=torch.tensor([0.2, 0.5, 1.1], dtype=torch.float64).expand(3, 3))
    graph.edge_attr.requires_grad_()
    model = flow(law=False, step_fraction=step_fraction)
    inputs = (graph.edge_attr, *model.parameters())
    found = []
    for limit in (10**9, 0):
        monkeypatch.setattr("spacetime_en.nn.physics.leapfrog.RECOMPUTE_ABOVE", limit)
        forecast = model._trajectory(graph, bound=1.0)
        loss = forecast.x.square().sum() + forecast.v.square().sum()
        found.append((forecast.x, *torch.autograd.grad(loss, inputs)))
    assert found[0][1].abs().max() > 0
    for kept, again in zip(*found, strict=True):
        torch.testing.assert_close(again, kept, rtol=1e-12, atol=1e-14)


def test_gradients_of_chaotic_systems_are_bounded():
    x = torch.zeros(2, 3, 2, dtype=torch.float64, requires_grad=True)
    v = torch.zeros_like(x, requires_grad=True)
    same, _ = _BoundedGradient.apply(x, v, 0.5)
    weight = torch.tensor([1e-3, 1e3], dtype=torch.float64)
    (same.sum((1, 2)) * weight).sum().backward()
    assert x.grad[0].norm().item() == pytest.approx(1e-3 * 6**0.5)  # small ones stay
    assert x.grad[1].norm().item() == pytest.approx(0.5)
    graph = particles(L=1, horizon=4.0)
    model, steepest = flow(law=False), []
    for bound in (None, 1e-3):
        model.zero_grad()
        model._trajectory(graph, bound).x.square().sum().backward()
        steepest.append(max(p.grad.abs().max().item() for p in model.parameters()))
    assert steepest[1] < 0.1 * steepest[0]


def test_smaller_steps_in_a_close_encounter():
    x = torch.tensor([[[-1.0, 0.1], [1.0, -0.1]]], dtype=torch.float64)
    v = torch.tensor([[[1.0, 0], [-1.0, 0]]], dtype=torch.float64)
    graph = SpacetimeGraph(x[:, None], v[:, None], edge_attr=-torch.ones(2, 2, 1), horizon=1.6)
    exact = flow(steps=20_000, step_fraction=None)(graph).x
    adaptive, equal = (
        flow(step_fraction=0.02)(graph).x,
        flow(steps=200, step_fraction=None)(graph).x,
    )
    assert (adaptive - exact).abs().max() < 0.1 * (equal - exact).abs().max()


def test_the_compiler_leaves_adaptive_steps_alone():
    graph, model = particles(L=1, horizon=2.0), flow(law=False)
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager")(graph)
        assert torch.equal(compiled.x, model(graph).x)
    torch.compiler.reset()


def test_the_compiler_is_not_imported_before_it_is_used():
    program = "import sys, spacetime_en as st; st.Flow; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nan_ends():
    graph = particles(L=1, dtype=torch.float64)
    x = graph.x.clone()
    x[0, 0, 0, 0] = torch.nan
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening=0.1)
    time = torch.ones(3).double()
    legs = [(time, StepControl(4, 20, 0.1))]
    ((end, _),) = advance(Leapfrog(Law()), pairs, x[:, 0], graph.v[:, 0], legs)
    assert end[0].isnan().any()
    assert end[1:].isfinite().all()
