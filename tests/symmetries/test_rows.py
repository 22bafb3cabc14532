"""The vectors of a row transform as documented."""

import numpy as np
import pytest
import torch

from benchmarks.symmetry_power import world
from spacetime_en import SpacetimeGraph
from spacetime_en.data import Task, Trajectories
from spacetime_en.geometry import random_rotation
from spacetime_en.symmetries.rows import describe, rows_of_windows, sample, typical_distance
from tests.helpers import masked, particles


def test_vectors_turn_and_do_not_shift():
    graph = particles()
    q, b = random_rotation(3), torch.ones(3, dtype=torch.float64)
    vectors, _, _ = describe(graph, 1.0)
    moved, _, _ = describe(graph.rotate(q).translate(b), 1.0)
    torch.testing.assert_close(moved, vectors @ q.mT)


def test_sums_that_are_near_change_most_with_the_distance():
    """Two nodes, pulled apart: 1 / r^3 times r falls, a Gaussian later, and r itself grows."""
    x = torch.tensor([[[[0.0, 0.0], [1.0, 0.0]]]], dtype=torch.float64)
    ratios = []
    graph = SpacetimeGraph(x, torch.ones_like(x), horizon=torch.ones(1, 1))
    for x_here in (x, 3 * x):
        vectors, _, near = describe(graph.replace(x=x_here), 1.0)
        ratios.append(vectors[0, 0].norm(dim=-1).numpy())
    assert near.sum() == 1
    assert ratios[1][near] == pytest.approx(ratios[0][near] / 9, rel=0.05)


def test_boosts_change_only_the_vectors_that_are_not_relative():
    graph = particles()
    w = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    time = -graph.since[..., None, None]
    boosted = graph.replace(x=graph.x + time * w, v=graph.v + w)
    (before, relative, _), (after, _, _) = describe(graph, 1.0), describe(boosted, 1.0)
    same = torch.isclose(before, after).flatten(0, 1).all(-1).all(0).numpy()
    assert (same == relative).all()


def test_the_residual_is_what_a_straight_line_misses():
    task = world(runs=40)
    sampled = sample(task)
    rows = rows_of_windows(sampled, typical_distance(sampled.graph))
    graph, target = sampled.graph, sampled.target
    line = graph.x[:, -1] + graph.horizon[:, -1, None, None] * graph.v[:, -1]
    expected = (target.x[:, -1] - line).flatten(0, 1)
    np.testing.assert_allclose(rows.residual, expected, atol=1e-5)
    assert (rows.node[:3] == [0, 1, 2]).all()


def test_test_windows_are_not_read():
    task = world(runs=40)
    sampled = sample(task)
    assert len(sampled.graph) == len(task.train) + len(task.val)


def test_nodes_that_are_missing_change_nothing():
    graph = masked()
    vectors, _, _ = describe(graph, 1.0)
    assert vectors[graph.observed.all(1)].isfinite().all()


def test_of_neighbours_only_the_last_frame_counts():
    graph = particles()

    def without(frame):
        observed = torch.ones(graph.x.shape[:3], dtype=torch.bool)
        observed[:, frame, 1] = False
        return describe(graph.replace(observed=observed), 1.0)[0][:, 0]

    vectors, _, _ = describe(graph, 1.0)
    torch.testing.assert_close(without(0), vectors[:, 0])
    assert not torch.allclose(without(-1), vectors[:, 0])


def test_one_observation_has_no_velocity_of_its_own():
    """Where velocities are differences, a neighbour that was seen once is not looked at."""
    x = np.random.default_rng(0).standard_normal((40, 7, 3, 2)).cumsum(1)
    observed = np.ones(x.shape[:3], dtype=bool)
    observed[:, :3, 1] = False
    paths = Trajectories.from_arrays(x, observed=observed)
    task = Task.from_trajectories(paths, length=4, stride=1, target_steps=1)
    sampled = sample(task)
    seen = sampled.graph.observed.sum(1)
    assert (seen[:, 1] == 0).any()
    assert (seen != 1).all()


@pytest.mark.parametrize("centre", [np.array([1.0, -2.0]), np.zeros(2)])
def test_a_place_is_one_more_vector_that_no_boost_changes(centre):
    sampled = sample(world(runs=10))
    rows = rows_of_windows(sampled, 1.0)
    placed = rows.with_place(centre)
    np.testing.assert_array_equal(placed.vectors[:, -1], rows.position - centre)
    assert placed.relative[-1]
    assert not placed.near[-1]
