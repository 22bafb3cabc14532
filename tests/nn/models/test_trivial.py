import pytest
import torch

from spacetime_en import SpacetimeGraph, build_model, collate
from tests.helpers import masked, particles


def moving(noise=0.0, seed=0, L=40):
    """Nodes on straight lines, positions and velocities with equal noise, and the truth."""
    g = torch.Generator().manual_seed(seed)
    x0, v0 = (torch.randn(2, 1, 3, 2, generator=g, dtype=torch.float64) for _ in range(2))
    times = torch.linspace(0, 3, L, dtype=torch.float64)
    x = x0 + times[:, None, None] * v0
    v = v0.expand_as(x)
    noisy = [t + noise * torch.randn(t.shape, generator=g, dtype=torch.float64) for t in (x, v)]
    target = x0 + (3 + 2) * v0  # (B, 1, N, n)
    return SpacetimeGraph(*noisy, times=times, horizon=2.0), target, v0


def with_holes():
    """Nodes that were observed 0 to 6 times at uneven times, and a path to forecast."""
    times = torch.tensor([0.0, 0.5, 2.0, 3.0, 4.0, 7.0], dtype=torch.float64)
    graph = masked(L=6, N=7, times=times, horizon=[[0.5, 1.0, 3.0]] * 3)
    seen = graph.observed.clone()
    seen[0, :, 4] = torch.arange(6) == 3
    seen[0, :, 5] = torch.arange(6) % 3 == 0
    counts = seen.sum(1)
    assert {0, 1, 2, 3} <= {*counts.flatten().tolist()}
    return graph.replace(observed=seen, x=graph.x.nan_to_num(9.0), v=graph.v.nan_to_num(9.0))


def own_observations(graph):
    """For each node that exists: its graph, number, times, positions, velocities, and targets."""
    last = graph.times.gather(1, graph.last_frame[:, None])
    for b in range(len(graph)):
        for i in graph.present[b].nonzero()[:, 0].tolist():
            seen = graph.observed[b, :, i]
            goals = last[b] + graph.horizon[b]
            yield b, i, graph.times[b, seen], graph.x[b, seen, i], graph.v[b, seen, i], goals


def test_last_frame_repeats_each_nodes_last_observation():
    graph = with_holes()
    forecast = build_model("last-frame")(graph)
    for b, i, _, x, v, _ in own_observations(graph):
        torch.testing.assert_close(forecast.x[b, :, i], x[-1].expand(3, 3))
        torch.testing.assert_close(forecast.v[b, :, i], v[-1].expand(3, 3))
    assert not forecast.x[~forecast.mask].any()


def test_straight_lines_start_at_each_nodes_last_observation():
    graph = with_holes()
    forecast = build_model("straight-line")(graph)
    for b, i, times, x, v, goals in own_observations(graph):
        expected = x[-1] + (goals - times[-1])[:, None] * v[-1]
        torch.testing.assert_close(forecast.x[b, :, i], expected)
        torch.testing.assert_close(forecast.v[b, :, i], v[-1].expand(3, 3))


def test_parabolas_go_through_each_nodes_last_three_observations():
    graph = with_holes()
    forecast = build_model("parabola")(graph)
    line = build_model("straight-line")(graph)
    counts = set()
    for b, i, times, x, _, goals in own_observations(graph):
        counts.add(min(len(times), 3))
        if len(times) < 3:
            torch.testing.assert_close(forecast.x[b, :, i], line.x[b, :, i])
            torch.testing.assert_close(forecast.v[b, :, i], line.v[b, :, i])
            continue
        t = times[-3:]
        c = torch.linalg.solve(torch.stack([t**0, t, t**2], 1), x[-3:])  # x = c0 + c1 t + c2 t^2
        value, rate = (torch.stack(p, 1) for p in ([goals**0, goals, goals**2],
                                                   [0 * goals, goals**0, 2 * goals]))  # fmt: skip
        torch.testing.assert_close(forecast.x[b, :, i], value @ c)
        torch.testing.assert_close(forecast.v[b, :, i], rate @ c)
    assert counts == {1, 2, 3}


def test_least_squares_lines_use_what_there_is_of_each_node():
    graph = with_holes()
    forecast = build_model("least-squares-line")(graph)
    for b, i, times, x, v, goals in own_observations(graph):
        ones, zeros = torch.ones_like(times), torch.zeros_like(times)
        rows = torch.cat([torch.stack([ones, times], 1), torch.stack([zeros, ones], 1)])
        p, q = torch.linalg.lstsq(rows, torch.cat([x, v])).solution
        torch.testing.assert_close(forecast.x[b, :, i], p + goals[:, None] * q)
        torch.testing.assert_close(forecast.v[b, :, i], q.expand(3, 3))


def test_times_far_from_zero_keep_their_steps_beside_padding():
    """Padded frames have the time 0, from which single precision could not count."""
    short = particles(L=3, dtype=torch.float32, times=1.7e9 + torch.arange(3).double())
    near = short.replace(times=torch.arange(3))
    long = particles(L=5, dtype=torch.float32)
    for preset in ("straight-line", "parabola", "least-squares-line"):
        found, expected = (
            build_model(preset)(collate([graph, long])).x[:3] for graph in (short, near)
        )
        torch.testing.assert_close(found, expected)


def test_straight_line_goes_on_for_the_horizon_of_each_graph():
    graph = particles(horizon=torch.tensor([1.0, 2.0, 0.5]))
    forecast = build_model("straight-line")(graph)
    for b, horizon in enumerate([1.0, 2.0, 0.5]):
        torch.testing.assert_close(forecast.x[b, 0], graph.x[b, -1] + horizon * graph.v[b, -1])
    torch.testing.assert_close(forecast.v, graph.v[:, -1:])


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
    graph = SpacetimeGraph(
        x, torch.zeros_like(x), times=times, horizon=2.0, observed=seen[..., None]
    )
    goal = times[:, -1, None, None] + 2.0
    forecast = build_model("parabola")(graph)
    assert torch.allclose(forecast.x[:, 0], p + q * goal + r * goal**2)
    assert torch.allclose(forecast.v[:, 0], q + 2 * r * goal)


def test_without_three_frames_the_parabola_is_the_straight_line():
    graph = particles(L=4, horizon=2.0)
    few = torch.tensor([[True] * 4, [False, True, False, True], [False, False, False, True]])
    graph = graph.replace(observed=few[..., None])
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
    torch.testing.assert_close(forecast.v[:, 0], q)
    torch.testing.assert_close(forecast.x[:, 0], p + (t[-1] + 2.0) * q)


def test_least_squares_line_beats_the_straight_line_on_noise():
    graph, x, _ = moving(noise=0.7)
    errors = {
        preset: (build_model(preset)(graph).x - x).square().mean()
        for preset in ("straight-line", "least-squares-line")
    }
    assert errors["least-squares-line"] < errors["straight-line"] / 4
