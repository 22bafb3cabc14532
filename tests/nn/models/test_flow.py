"""SET-Flow: forecasts at any time through a law of force."""

import math

import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph, build_model
from spacetime_en.geometry import norm
from spacetime_en.nn.models.motion import Curriculum
from tests.helpers import liven, masked, particles
from tests.nn.samples import far_apart, flow

SOFTENING = Curriculum().softening[1]


def test_a_new_force_is_zero_and_a_flow_as_built_the_straight_line():
    graph = particles(horizon=2.0)
    fresh = build_model("set-flow").double()(graph)
    line = build_model("straight-line")(graph)
    torch.testing.assert_close(fresh.x, line.x)
    assert (flow(law=False)(graph).x - line.x).abs().max() > 0.01  # livened, something else


def test_a_symmetric_force_conserves_momentum_and_energy():
    graph = particles(L=1, B=2, horizon=3.0)
    model = flow(law=False, step_fraction=0.01)
    forecast = model(graph)
    torch.testing.assert_close(forecast.v.mean(2), graph.v.mean(2))
    # The potential of a pair is minus the integral of its force over r, here by quadrature.
    r = torch.linspace(1e-3, 20, 40_001, dtype=torch.float64)[:, None]
    tables = {}
    for charge in (-1.0, 1.0):
        f = model.force.strength((r.square() + SOFTENING**2).sqrt(), torch.full_like(r, charge))
        f = (f * r / (r.square() + SOFTENING**2).sqrt())[:, 0].detach()
        tables[charge] = -torch.cumulative_trapezoid(f, r[:, 0])

    def energy(x, v, charges):
        total = v.square().sum((1, 2)) / 2
        for i in range(x.shape[1]):
            for j in range(i):
                for b in range(len(x)):
                    place = int(norm(x[b, i] - x[b, j]) / 20 * 40_000)
                    total[b] += tables[float(charges[b, i, j])][place]
        return total

    c = graph.edge_attr[:, 0, ..., 0]
    start, end = energy(graph.x[:, 0], graph.v[:, 0], c), energy(*forecast.last, c)
    kinetic = graph.v.square().sum((1, 2, 3)) / 2
    moved = (forecast.v.square().sum((1, 2, 3)) / 2 - kinetic).abs()
    assert (moved > 0.05).all()  # energy was exchanged
    assert ((end - start).abs() < 0.02 * moved + 2e-3).all()


@pytest.mark.parametrize("step_fraction", [None, 0.02])
def test_two_bodies_go_round_each_other(step_fraction):
    # On a circle of radius 1/2 about their centre, each pulled with 1 / r^2 = 1: v^2 = 1/2.
    speed = math.sqrt(0.5)
    x = torch.tensor([[[0.5, 0], [-0.5, 0]]], dtype=torch.float64)
    v = torch.tensor([[[0, speed], [0, -speed]]], dtype=torch.float64)
    time = 2 * math.pi * 0.5 / speed  # once around
    graph = SpacetimeGraph(x[:, None], v[:, None], edge_attr=-torch.ones(2, 2, 1), horizon=time)
    model = flow(steps=400, step_fraction=step_fraction)
    forecast = model(graph)
    torch.testing.assert_close(forecast.x[:, 0], x, rtol=0, atol=1e-3)
    quarter, half = model.at(graph, [time / 4, time / 2]).x.unbind(1)
    torch.testing.assert_close(half, -x, rtol=0, atol=1e-3)
    torch.testing.assert_close(quarter[0, 0], torch.tensor([0, 0.5]).double(), rtol=0, atol=1e-3)


def test_steps_are_coarser_in_training():
    graph, counts = particles(L=1, horizon=4.0), []
    model = flow()
    model.force.register_forward_hook(lambda *_: counts.append(1))
    model.train()(graph)
    training = len(counts)
    model.eval()(graph)
    assert len(counts) - training > 1.5 * training


@pytest.mark.parametrize("times", [[0.25, 0.5, 1.0], [k / 10 for k in range(1, 11)]])
def test_a_leg_takes_its_part_of_the_least_steps(times):
    graph, counts = far_apart(L=1, horizon=1.0).to(torch.float32), []
    model = flow(step_fraction=None, steps=100).float()
    model.force.register_forward_hook(lambda *_: counts.append(1))
    model.at(graph, times)
    assert len(counts) == 100 + 1  # (and one at the start)


def test_forecasts_at_many_times_continue_each_other():
    graph = far_apart(horizon=2.0)
    model = flow(step_fraction=0.01)
    several = model.at(graph, [0.5, 1.0, 2.0])
    torch.testing.assert_close(several.last[0], model(graph).x[:, 0], rtol=0, atol=1e-4)
    each = torch.tensor([[0.5, 1.0], [1.0, 2.0], [0.0, 2.0]], dtype=torch.float64)
    own = model.at(graph, each)
    assert torch.equal(own.times, each)
    torch.testing.assert_close(own.x[0, 0], several.x[0, 0], rtol=0, atol=1e-4)
    torch.testing.assert_close(own.x[1, 1], several.x[1, 2], rtol=0, atol=1e-4)
    torch.testing.assert_close(own.x[2, 0], graph.x[2, -1])
    for times, what in (
        ([1.0, 0.5], "expected the target times in increasing order"),
        ([-1.0, 0.5], "expected a time ahead"),
        ([math.nan], "expected finite numbers"),
        ([], "expected at least one target time"),
        (torch.ones(2, 4), r"\(3, any\), found \(2, 4\)"),
    ):
        with pytest.raises(InputError, match=f"horizon: .*{what}"):
            model.at(graph, times)
    with pytest.raises(InputError, match=r"graph: its dtype is torch.float32, the model's is"):
        model.at(graph.to(torch.float32), [1.0])


def test_only_the_last_observation_of_each_node_is_read():
    graph = masked()
    model = flow()
    newest = torch.arange(5)[:, None] == graph.last_observed[:, None]  # (B, L, N)
    x, v = (t.masked_fill(~newest[..., None], 7.0) for t in (graph.x, graph.v))
    torch.testing.assert_close(model(graph).x, model(graph.replace(x=x, v=v)).x)
    # Nodes that are missing in the last frame are moved there first.
    moved = graph.latest()
    assert (graph.age > 0)[graph.present].any()
    torch.testing.assert_close(model(graph).x, model(moved).x)


def test_paths_in_a_box_go_on_where_they_are():
    graph = particles(box=[3.0] * 3, horizon=0.5)
    whole = graph.unwrapped_x()
    wrapped = graph.replace(x=whole - 3 * (whole / 3).floor())
    egnn = liven(build_model("egnn", hidden=8)).double()
    cells = egnn(wrapped).x - egnn(graph).x
    torch.testing.assert_close(flow()(wrapped).x - flow()(graph).x, cells)


def test_nobody_acts_on_anybody():
    graph = particles(L=1)
    nobody = torch.empty(4, 0, dtype=torch.long)
    graph = SpacetimeGraph(
        graph.x, graph.v, neighbours=nobody, edge_attr=torch.empty(4, 0, 1), horizon=2.0
    )
    line = build_model("straight-line")(graph)
    torch.testing.assert_close(flow()(graph).x, line.x)


def test_masses_are_features_of_a_node():
    graph = particles()
    heavy = graph.replace(features=torch.rand(3, 4, 1).double())
    model = build_model("set-flow", like=heavy, hidden=8)
    assert model.config["node_features"] == 1
    model = liven(model).double()
    lighter = heavy.replace(features=heavy.features.clone())
    lighter.features[:, :, 0] += 1
    assert (model(heavy).x - model(lighter).x).abs().max() > 1e-3
    with pytest.raises(InputError, match=r"features: the model was built for 1 per node, the gra"):
        model(graph)
    with pytest.raises(InputError, match=r"built for none per node, the graph has 1; build it"):
        flow()(heavy)


def test_data_in_other_units_move_the_same():
    graph = far_apart(horizon=2.0)
    in_km = graph.replace(x=graph.x / 1000, v=graph.v / 1000 * 60, horizon=2.0 / 60)
    model = flow(law=False)
    other = flow(law=False, length_scale=1e-3, time_scale=1 / 60)
    torch.testing.assert_close(other(in_km).x * 1000, model(graph).x)
    torch.testing.assert_close(other(in_km).v * 1000 / 60, model(graph).v)


@pytest.mark.parametrize(
    "setting", [{"step_fraction": 0.0}, {"step_fraction": 2.0}, {"steps": 0}, {"hidden": 0}]
)
def test_bad_settings_are_named(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        build_model("set-flow", **setting)
