import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph, build_model
from tests import reference
from tests.helpers import liven, masked, particles


def moving(noise=0.0, seed=0, L=40):
    """Nodes on straight lines, positions and velocities with equal noise, and the truth."""
    g = torch.Generator().manual_seed(seed)
    x0, v0 = (torch.randn(2, 1, 3, 2, generator=g, dtype=torch.float64) for _ in range(2))
    times = torch.linspace(0, 3, L, dtype=torch.float64)
    x = x0 + times[:, None, None] * v0
    v = v0.expand_as(x)
    noisy = [t + noise * torch.randn(t.shape, generator=g, dtype=torch.float64) for t in (x, v)]
    target = x0[:, 0] + (3 + 2) * v0[:, 0]
    return SpacetimeGraph(*noisy, times=times, horizon=2.0), target, v0[:, 0]


def test_last_frame_repeats_the_last_observed_frame():
    graph = masked()
    forecast = build_model("last-frame")(graph)
    for b, t in enumerate([4, 4, 3]):
        nodes = graph.node_mask[b]
        torch.testing.assert_close(forecast.x[b, nodes], graph.x[b, t, nodes])
        torch.testing.assert_close(forecast.v[b, nodes], graph.v[b, t, nodes])


def test_straight_line_goes_on_for_the_horizon_of_each_graph():
    graph = particles(horizon=torch.tensor([1.0, 2.0, 0.5]))
    forecast = build_model("straight-line")(graph)
    for b, horizon in enumerate([1.0, 2.0, 0.5]):
        torch.testing.assert_close(forecast.x[b], graph.x[b, -1] + horizon * graph.v[b, -1])
    torch.testing.assert_close(forecast.v, graph.v[:, -1])


@pytest.mark.parametrize("preset", ["straight-line", "least-squares-line"])
def test_lines_are_exact_on_lines(preset):
    graph, x, v = moving()
    forecast = build_model(preset)(graph)
    torch.testing.assert_close(forecast.x, x)
    torch.testing.assert_close(forecast.v, v)


def test_the_parabola_is_exact_for_constant_acceleration_at_any_times():
    g = torch.Generator().manual_seed(0)
    p, q, r = torch.randn(3, 2, 4, 3, generator=g, dtype=torch.float64)
    times = torch.tensor([[0.0, 0.3, 1.0, 1.5], [5.0, 6.0, 6.5, 9.0]], dtype=torch.float64)
    t = times[..., None, None]
    x = p[:, None] + q[:, None] * t + r[:, None] * t**2
    seen = torch.tensor([[True] * 4, [True, True, False, True]])
    graph = SpacetimeGraph(x, torch.zeros_like(x), times=times, horizon=2.0, frame_mask=seen)
    goal = times[:, -1, None, None] + 2.0
    forecast = build_model("parabola")(graph)
    assert torch.allclose(forecast.x, p + q * goal + r * goal**2)
    assert torch.allclose(forecast.v, q + 2 * r * goal)


def test_without_three_frames_the_parabola_is_the_straight_line():
    graph = particles(L=4, horizon=2.0)
    few = torch.tensor([[True] * 4, [False, True, False, True], [False, False, False, True]])
    graph = graph.replace(frame_mask=few)
    parabola, line = (build_model(name)(graph).x for name in ("parabola", "straight-line"))
    assert torch.allclose(parabola[1:], line[1:])
    assert not torch.allclose(parabola[0], line[0])
    two = particles(L=2)
    assert torch.equal(build_model("parabola")(two).x, build_model("straight-line")(two).x)


def test_least_squares_line_minimises_its_sum_of_squares():
    graph, _, _ = moving(noise=1.0, L=6)
    forecast = build_model("least-squares-line")(graph)
    t = graph.times[0]
    # The stacked system (1 t; 0 1) (p, q) = (x, v), solved by a general solver.
    rows = torch.cat([torch.stack([torch.ones(6), t], 1), torch.tensor([[0.0, 1.0]] * 6)]).double()
    data = torch.cat([graph.x, graph.v], dim=1)  # (B, 2L, N, n)
    p, q = (
        torch.linalg.lstsq(rows.expand(2, -1, -1), data.flatten(2))
        .solution.unflatten(-1, (3, 2))
        .unbind(1)
    )
    torch.testing.assert_close(forecast.v, q)
    torch.testing.assert_close(forecast.x, p + (t[-1] + 2.0) * q)


def test_least_squares_line_beats_the_straight_line_on_noise():
    graph, x, _ = moving(noise=0.7)
    errors = {
        preset: (build_model(preset)(graph).x - x).square().mean()
        for preset in ("straight-line", "least-squares-line")
    }
    assert errors["least-squares-line"] < errors["straight-line"] / 4


def test_linear_dynamics_starts_at_x_plus_v_and_has_three_numbers():
    graph = particles()
    model = build_model("linear").double()
    torch.testing.assert_close(model(graph).x, graph.x[:, -1] + graph.v[:, -1])
    with torch.no_grad():
        model.alpha.fill_(2.0), model.beta.fill_(0.5), model.gamma.fill_(0.1)
    torch.testing.assert_close(model(graph).x, graph.x[:, -1] + 2 * graph.v[:, -1])
    torch.testing.assert_close(model(graph).v, 0.5 * graph.v[:, -1] + 0.1)


def test_mlp_is_a_network_per_node_and_frame_then_a_mean():
    torch.manual_seed(0)
    model = build_model("mlp").double()
    graph = particles(L=3)
    outs = [model.network(torch.cat([graph.x[1, t, 2], graph.v[1, t, 2]])) for t in range(3)]
    mean = sum(outs) / 3
    torch.testing.assert_close(model(graph).x[1, 2], mean[:3])
    torch.testing.assert_close(model(graph).v[1, 2], mean[3:])


def test_mlp_is_tied_to_its_number_of_dimensions():
    with pytest.raises(InputError, match="tied to n = 3 space dimensions, the graph has 2"):
        build_model("mlp").double()(particles(n=2))


def test_egnn_is_the_spatial_network_on_every_frame_then_a_mean():
    torch.manual_seed(0)
    model = liven(build_model("egnn", hidden=8, layers=2)).double()
    graph = particles(B=1, L=3)
    xs, vs = [], []
    for t in range(3):
        a = reference.edges(graph.edge_attr[0, 0], graph.x[0, t])
        _, x, v = reference.egnn(model.egnn, graph.h[0, t], graph.x[0, t], graph.v[0, t], a)
        xs.append(x)
        vs.append(v)
    torch.testing.assert_close(model(graph).x[0], sum(xs) / 3)
    torch.testing.assert_close(model(graph).v[0], sum(vs) / 3)
