"""SET-Flow: forecasts at any time through a law of force, and how it is learned."""

import math

import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.geometry import norm
from spacetime_en.nn.models.motion import Curriculum
from tests.helpers import liven, masked, particles
from tests.nn.samples import far_apart, flow

ADAPTIVE = Curriculum().equal_steps_until
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
    assert len(counts) == 100 + len(times)  # and one at the start of each leg


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


def test_what_is_behind_masks_does_not_reach_the_loss():
    graph = masked()
    model = flow()
    target = model(graph)
    unknown = target.replace(x=target.x.masked_fill(~target.mask[..., None], torch.nan))
    for used in (0.0, 1.0):
        model.set_progress(used)
        for truth in (target, unknown):
            losses = model.losses(graph, truth, 1.0)
            assert losses.isfinite().all()


def test_the_window_teaches_where_all_nodes_were_in_its_first_and_last_frame():
    """Padded or not, whole windows have the loss that they have alone; others have none."""
    model = flow(law=False)
    model.set_progress(0.0)  # the window is all it looks at
    graph = particles(L=3)
    target = Forecast(*torch.zeros(2, 3, 1, 4, 3, dtype=torch.float64))
    alone = model.losses(graph, target, 1.0)
    seen = torch.ones(3, 4, 6, dtype=torch.bool)
    seen[:, 0, 2] = False
    partly = particles(L=4, N=6, observed=seen)
    zeros = Forecast(*torch.zeros(2, 3, 1, 6, 3, dtype=torch.float64))
    together = model.losses(*collate([(graph, target), (partly, zeros)]), 1.0)
    torch.testing.assert_close(together[:3], alone)
    assert not together[3:].any()


def test_paths_in_a_box_go_on_where_they_are():
    graph = particles(box=[3.0] * 3, horizon=0.5)
    whole = graph.unwrapped_x()
    wrapped = graph.replace(x=whole - 3 * (whole / 3).floor())
    egnn = liven(build_model("egnn", hidden=8)).double()
    cells = egnn(wrapped).x - egnn(graph).x
    torch.testing.assert_close(flow()(wrapped).x - flow()(graph).x, cells)


def test_nothing_to_explain_is_no_error():
    graph = particles(L=1)
    still = graph.replace(v=torch.zeros_like(graph.v))
    model = flow(law=False)
    for used in (0.0, 0.5, 1.0):
        model.set_progress(used)
        at_rest = Forecast(still.x, still.v)
        assert model.losses(still, at_rest, 1.0).isfinite().all()


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


def test_the_curriculum_goes_from_smooth_to_sharp():
    graph = particles(horizon=2.0)
    model = flow()
    found = []
    for used in (0.0, ADAPTIVE, 1.0):
        model.set_progress(used)
        found.append(model(graph).x)
    assert (found[0] - found[1]).abs().max() > 1e-3
    assert (found[1] - found[2]).abs().max() > 1e-3
    torch.testing.assert_close(found[2], flow()(graph).x)  # as built and as loaded: at the end


@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_the_loss_is_0_for_the_truth_and_grows_with_the_error(L, used):
    graph = far_apart(L=L, horizon=1.0)
    model = flow(step_fraction=0.05)
    model.set_progress(used)
    if L > 1:  # let the last frame be what the flow makes of the first
        span = (graph.times[:, -1] - graph.times[:, 0]).to(graph.x)
        first = graph.frame(torch.zeros(3, dtype=torch.long), span[:, None])
        graph.x[:, -1], graph.v[:, -1] = model(first).last
    truth = model(graph)
    none = model.losses(graph, truth, alpha=1.0)
    one = torch.tensor([1.0, 0, 0], dtype=torch.float64)[:, None, None, None]  # of three windows
    some, more = (
        model.losses(graph, Forecast(truth.x + d * one, truth.v), 1.0) for d in (0.1, 0.3)
    )
    scale = 1e-2 if used < ADAPTIVE else 1e-6
    assert (none < scale).all()
    if L == 1 or used >= ADAPTIVE:  # before that, the window is all it looks at
        assert none[0] < some[0] < more[0]


def at_the_end(B):
    """A model in the last stage of its training, graphs of one frame, and its forecasts."""
    graph = particles(B=B, L=1, horizon=2.0)
    model = flow(law=False)
    model.set_progress(1.0)
    with torch.no_grad():
        return model, graph, model(graph)


def test_where_nothing_can_be_predicted_a_fifth_of_the_windows_still_counts():
    model, graph, truth = at_the_end(B=10)
    off = torch.arange(1.0, 11.0, dtype=torch.float64)[:, None, None, None]
    losses = model.losses(graph, Forecast(truth.x + 1e3 * off, truth.v), 1.0)
    assert (losses <= 0.5).sum() == 2
    assert losses[2:].min() > 0.5
    assert losses.max() < 0.98


def test_outliers_do_not_decide_the_direction_of_a_step():
    model, graph, truth = at_the_end(B=8)
    far = Forecast(truth.x + 0.1 * torch.randn_like(truth.x), truth.v)
    far.x[0] *= 1e3

    def gradient(windows):
        model.zero_grad()
        model.losses(graph, far, 1.0)[windows].sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    others = gradient(slice(1, 8))
    assert others.norm() > 0
    assert (gradient(slice(8)) - others).norm() < 1e-3 * others.norm()


@pytest.mark.parametrize(
    "setting", [{"step_fraction": 0.0}, {"step_fraction": 2.0}, {"steps": 0}, {"hidden": 0}]
)
def test_bad_settings_are_named(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        build_model("set-flow", **setting)
