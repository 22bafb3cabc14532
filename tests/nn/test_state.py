"""Into a model's units and back."""

import torch

from spacetime_en.nn.state import Units, last_state, mean_over_time
from tests.helpers import masked, particles


def test_there_and_back_nothing_changes():
    graph = particles()
    units = Units.of(graph, length=2.0, time=3.0, centred=True)
    state = units.normalize(graph)
    assert torch.allclose(state.x[:, 0].mean(1), torch.zeros(3, 3, dtype=torch.float64))
    back = units.denormalize(graph, state.x[:, -1], state.v[:, -1])
    assert torch.allclose(back.x, graph.x[:, -1])
    assert torch.allclose(back.v, graph.v[:, -1])


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
    mean = mean_over_time(state.x, graph.frame_mask)
    seen = graph.frame_mask[1]
    assert torch.allclose(mean[1], state.x[1, seen].mean(0))


def test_the_last_state_is_that_of_the_last_observed_frame():
    graph = masked()  # of the third graph the last frame is missing
    _, x, _ = last_state(graph)
    assert torch.equal(x[2, :3], graph.x[2, -2, :3])
