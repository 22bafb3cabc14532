"""Step by step: every forecast is the last frame of the next window."""

import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.nn.rollout import first_step, rollout, with_times
from tests.helpers import liven, masked, particles, random_neighbours


def egnn(**settings):
    torch.manual_seed(0)
    return liven(build_model("egnn", **{"hidden": 8, "layers": 1} | settings)).double().eval()


def test_a_path_is_a_plain_loop():
    graph, model = particles(L=4), egnn()
    path = rollout(model, graph, [1.0, 3.0, 4.0])
    x, v, states = graph.x, graph.v, []
    for _ in range(4):
        window = SpacetimeGraph(x[:, -4:], v[:, -4:], edge_attr=graph.edge_attr)
        states.append(model(window))
        x, v = torch.cat([x, states[-1].x], 1), torch.cat([v, states[-1].v], 1)
    assert path.times.tolist() == [[1, 3, 4]] * 3
    for t, k in enumerate((0, 2, 3)):
        torch.testing.assert_close(path.x[:, t], states[k].x[:, 0])
        torch.testing.assert_close(path.v[:, t], states[k].v[:, 0])
    asked = model.at(graph, [1.0, 3.0, 4.0])
    assert torch.equal(asked.x, path.x)
    assert torch.equal(model(with_times(graph, [1.0, 3.0, 4.0])).x, path.x)


def test_steps_are_those_of_each_graph():
    """The straight line, in steps of the time between frames, is the straight line."""
    times = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.5, 1.0], [5.0, 15.0, 25.0]])
    horizon = torch.tensor([[1.0, 3.0], [0.5, 1.5], [10.0, 30.0]])
    graph = particles(times=times, horizon=horizon)
    line = build_model("straight-line")
    for window in (graph, graph[1:]):
        torch.testing.assert_close(rollout(line, window).x, line(window).x)


def test_gaps_and_padding_go_along():
    graph = masked(L=4, times=[0.0, 1.0, 2.0, 3.0], horizon=[[1.0, 2.0, 7.0]] * 3)
    line = build_model("straight-line")
    path = rollout(line, graph)
    torch.testing.assert_close(path.x, line(graph).x)
    assert torch.equal(path.mask, graph.present[:, None].expand(3, 3, 5))
    # A window keeps its length, however long the path and whatever else is in the batch.
    model = egnn()
    together = rollout(model, collate([graph, particles(L=6, N=6, horizon=[[1.0, 2.0, 7.0]] * 3)]))
    torch.testing.assert_close(together.x[:3, :, :5], rollout(model, graph).x)
    first = with_times(particles(L=2), [1.0, 6.0])
    longer = with_times(particles(L=5), [1.0, 6.0])
    together = rollout(model, collate([first, longer]))
    torch.testing.assert_close(together.x[:3], rollout(model, first).x)
    torch.testing.assert_close(together.x[3:], rollout(model, longer).x)


def test_speeds_among_the_features_follow_the_forecast_and_others_stay():
    graph = particles(L=2)
    mass = torch.rand(3, 2, 4, 1, dtype=torch.float64)
    features = torch.cat([graph.v.norm(dim=-1, keepdim=True), mass], dim=-1)
    seen = []

    def model(window):
        seen.append(window.features)
        return Forecast(window.x[:, -1:], 2 * window.v[:, -1:])

    gaps = torch.ones(3, 2, 4, dtype=torch.bool)
    gaps[0, 0, 1] = False
    for observed in (None, gaps):
        seen.clear()
        values = features if observed is None else features.masked_fill(~gaps[..., None], torch.nan)
        rollout(model, graph.replace(features=values, observed=observed), [1.0, 2.0])
        torch.testing.assert_close(seen[1][:, -1, :, 0], 2 * features[:, -1, :, 0])
        torch.testing.assert_close(seen[1][:, -1, :, 1], mass[:, -1, :, 0])
        torch.testing.assert_close(seen[1][:, 0], features[:, 1])


@pytest.mark.parametrize("unit", [1.0, 1e-10])
def test_a_type_that_no_node_has_is_not_taken_for_its_speed(unit):
    graph = particles(L=2)
    types = torch.tensor([1.0, 0.0]).expand(3, 4, 2)
    graph = graph.replace(x=unit * graph.x, v=unit * graph.v, features=types)
    seen = []

    def model(window):
        seen.append(window.features)
        return Forecast(window.x[:, -1:], 2 * window.v[:, -1:])

    rollout(model, graph, [1.0, 2.0])
    assert torch.equal(seen[1], graph.features)


def test_lists_and_boxes_go_along():
    model = egnn()
    for lists in (random_neighbours(4, 2), random_neighbours(4, 2, 3, 3)):
        graph = particles(neighbours=lists, box=[4.0, 5.0, 6.0])
        path = rollout(model, graph, [1.0, 2.0])
        x = torch.cat([graph.unwrapped_x()[:, 1:], path.x[:, :1]], 1)
        v = torch.cat([graph.v[:, 1:], path.v[:, :1]], 1)
        changed = {"x": x, "v": v}
        if lists.ndim == 4:
            changed["neighbours"] = lists[:, [1, 2, 2]]
            changed["edge_attr"] = graph.edge_attr[:, [1, 2, 2]]
        torch.testing.assert_close(path.x[:, 1:], model(graph.replace(**changed)).x)


def test_gradients_reach_the_first_step():
    graph = particles()
    x = graph.x.clone().requires_grad_()
    rollout(egnn(), graph._replace(x=x), [4.0]).x.sum().backward()
    assert (x.grad.abs().sum((2, 3)) > 0).all()


def test_a_single_frame_steps_by_the_first_target_time():
    graph = particles(L=1, horizon=[[0.5, 1.5]] * 3)
    line = build_model("straight-line")
    torch.testing.assert_close(rollout(line, graph).x, line(graph).x)


@pytest.mark.parametrize("times", [[0.5, 1.0], [1.0, 2.5], [0.0, 1.0]])
def test_times_between_steps_are_refused(times):
    with pytest.raises(InputError, match=r"horizon: .* whole multiples of the time between frames"):
        egnn()(with_times(particles(), times))


def test_steps_that_differ_from_graph_to_graph_are_refused():
    horizon = torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="horizon: "):
        egnn()(particles(horizon=horizon))
    with pytest.raises(InputError, match="at most 100,000 steps"):
        rollout(egnn(), particles(), [1.0, 1e6])


def test_a_frame_that_is_missing_does_not_change_the_step():
    seen = torch.tensor([[True, False, True]] * 3)
    graph = particles(observed=seen[..., None], horizon=[[1.0, 2.0]] * 3)
    line = build_model("straight-line")
    torch.testing.assert_close(rollout(line, graph).x, line(graph).x)


def test_the_first_step_of_an_example():
    graph = particles(horizon=[[1.0, 2.0]] * 3)
    target = Forecast(*torch.rand(2, 3, 2, 4, 3), graph.horizon, torch.rand(3, 2, 4) < 0.5)
    window, step = first_step(graph, target)
    assert window.horizon.tolist() == [[1]] * 3
    assert torch.equal(step.x, target.x[:, :1])
    assert torch.equal(step.mask, target.mask[:, :1])
    far = particles(horizon=4.0)
    assert first_step(far, step)[0].horizon.tolist() == [[4]] * 3  # one time is any time
