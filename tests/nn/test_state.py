"""Into a model's units and back."""

import torch

from spacetime_en import Forecast
from spacetime_en.nn.state import Units, counted, last_state, mean_over_time, without_gaps
from tests.helpers import masked, particles


def test_there_and_back_nothing_changes():
    graph = particles()
    units = Units.of(graph, length=2.0, time=3.0, centred=True)
    state = units.normalize(graph)
    assert torch.allclose(state.x[:, 0].mean(1), torch.zeros(3, 3, dtype=torch.float64))
    for last in (slice(-1, None), -1):  # with and without the axis of times
        back = units.denormalize(graph, state.x[:, last], state.v[:, last])
        assert torch.allclose(back.x, graph.x[:, -1:])
        assert torch.allclose(back.v, graph.v[:, -1:])
        assert torch.equal(back.times, graph.horizon)
    x, v = units.normalize_forecast(back)
    assert torch.allclose(x, state.x[:, -1:])
    assert torch.allclose(v, state.v[:, -1:])


def test_padding_is_0():
    graph = masked(horizon=[[1.0, 2.0]] * 3)
    units = Units.of(graph, length=2.0, time=3.0, centred=True)
    ones = torch.ones(3, 2, 5, 3, dtype=torch.float64)
    found = units.denormalize(graph, ones, ones)
    assert torch.equal(found.mask, graph.present[:, None].expand(3, 2, 5))
    for value in (found.x, found.v):
        assert not value[~found.mask].any()
        assert (value[found.mask] != 0).all()


def test_a_model_sees_the_same_in_any_units():
    graph = particles()
    scaled = graph.replace(x=100 * graph.x, v=10 * graph.v)  # lengths times 100, times times 10
    here = Units.of(graph, 1.0, 1.0, centred=True).normalize(graph)
    there = Units.of(scaled, 100.0, 10.0, centred=True).normalize(scaled)
    assert torch.allclose(here.x, there.x)
    assert torch.allclose(here.v, there.v)


def test_what_is_missing_counts_as_zero_and_changes_no_mean():
    graph = masked()
    units = Units.of(graph, 1.0, 1.0, centred=True)
    state = units.normalize(graph)
    assert all(t.isfinite().all() for t in state)
    mean = mean_over_time(state.x, graph.observed)
    for b in range(3):
        for i in range(5):
            seen = graph.observed[b, :, i]
            expected = state.x[b, seen, i].mean(0) if seen.any() else torch.zeros(3).double()
            torch.testing.assert_close(mean[b, i], expected)


def test_the_origin_is_the_centroid_of_the_first_frame_in_which_anybody_was():
    graph = masked()
    units = Units.of(graph, 1.0, 1.0, centred=True)
    for b in range(3):
        t = int(graph.observed[b].any(1).nonzero()[0])
        expected = graph.x[b, t, graph.observed[b, t]].mean(0)
        torch.testing.assert_close(units.origin[b, 0, 0], expected)


def test_the_last_state_is_that_of_each_nodes_last_observation():
    graph = masked()
    _, x, v = last_state(graph)
    for b in range(3):
        for i in graph.present[b].nonzero()[:, 0]:
            t = graph.observed[b, :, i].nonzero()[-1, 0]
            assert torch.equal(x[b, i], graph.x[b, t, i])
            assert torch.equal(v[b, i], graph.v[b, t, i])
    assert not x[~graph.present].any()


def test_gaps_are_filled_in_by_straight_lines():
    """A plain loop: between two observations, before the first and after the last."""
    times = torch.tensor([0.0, 0.5, 2.0, 3.0, 4.0, 7.0], dtype=torch.float64)
    graph = masked(L=6, times=times)
    state = Units.of(graph, 1.0, 1.0, centred=False).normalize(graph)
    found = without_gaps(graph, state)
    kinds = set()
    for b in range(3):
        for i in range(5):
            seen = graph.observed[b, :, i].nonzero()[:, 0].tolist()
            for t in range(6):
                before, after = [s for s in seen if s <= t], [s for s in seen if s >= t]
                if not seen:
                    expected = torch.zeros(3, dtype=torch.float64)
                elif before and after:
                    s, e = before[-1], after[0]
                    part = (times[t] - times[s]) / (times[e] - times[s]) if s < e else 0.0
                    expected = torch.lerp(graph.x[b, s, i], graph.x[b, e, i], float(part))
                else:
                    s = before[-1] if before else after[0]
                    expected = graph.x[b, s, i] + (times[t] - times[s]) * graph.v[b, s, i]
                kinds.add((bool(before), bool(after)))
                torch.testing.assert_close(found.x[b, t, i], expected)
    assert len(kinds) == 4
    assert torch.equal(found.v, state.v)
    plain = particles()
    state = Units.of(plain, 1.0, 1.0, centred=False).normalize(plain)
    assert without_gaps(plain, state) is state


def test_targets_count_where_they_and_their_nodes_are_there():
    graph, plain = masked(), particles(L=5, N=5)
    target = Forecast(*torch.ones(2, 3, 1, 5, 3))
    mask = torch.arange(5).expand(3, 1, 5) != 1
    assert counted(plain, target) is None
    assert torch.equal(counted(plain, target.replace(mask=mask)), mask)
    assert torch.equal(counted(graph, target), graph.present[:, None])
    both = counted(graph, target.replace(mask=mask))
    assert torch.equal(both, mask & graph.present[:, None])
