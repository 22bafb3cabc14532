import pytest
import torch

from spacetime_en import SpacetimeGraph, build_model
from tests.helpers import masked, particles


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
