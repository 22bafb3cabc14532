"""Windows of one orientation cannot tell whether a law is equivariant."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.symmetry_power import world
from spacetime_en.geometry import random_rotation
from spacetime_en.symmetries.poses import same_pose
from spacetime_en.symmetries.rows import rows_of_windows, sample, typical_distance

UP = np.array([0.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def rows():
    """Windows in random orientations."""
    sampled = sample(world(runs=100, seed=3, dims=3))
    return rows_of_windows(sampled, typical_distance(sampled.graph))


def squeezed(rows, by):
    """The same windows, their lengths along each axis multiplied."""
    return replace(rows, vectors=rows.vectors * by, position=rows.position * by)


def turned(rows, rotations):
    """A random rotation for each window, (W, 3, 3)."""
    q = rotations[rows.window]
    vectors = np.einsum("rij,rkj->rki", q, rows.vectors)
    return replace(rows, vectors=vectors, position=np.einsum("rij,rj->ri", q, rows.position))


def test_windows_turned_in_all_ways(rows):
    assert same_pose(rows) is None
    assert same_pose(rows, UP) is None


def test_one_line_and_one_direction(rows):
    thin = squeezed(rows, [0.03, 1.0, 0.03])
    assert same_pose(thin) == "all windows head along one line"
    v = np.abs(thin.vectors)
    assert same_pose(replace(thin, vectors=v)) == "all windows head the same way"
    assert same_pose(squeezed(rows, [0.5, 1.0, 1.0])) is None


def test_one_plane(rows):
    assert same_pose(squeezed(rows, [1.0, 1.0, 0.05])) == "all windows lie in one plane"


def test_upright_windows_tell_about_rotations_about_up_only(rows):
    """All have one shape, and are randomly rotated about the vertical axis."""
    one = squeezed(rows, [1.0, 0.1, 1.0])
    one = replace(one, vectors=one.vectors[rows.node], position=one.position[rows.node])
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, rows.windows)
    c, s, zero = np.cos(angle), np.sin(angle), np.zeros_like(angle)
    about = np.stack([c, -s, zero, s, c, zero, zero, zero, zero + 1], axis=1).reshape(-1, 3, 3)
    upright = turned(one, about)
    assert same_pose(one, UP) is not None
    assert same_pose(upright, UP) is None


def test_the_answer_turns_with_all_windows(rows):
    q = np.broadcast_to(random_rotation(3).numpy(), (rows.windows, 3, 3))
    for by in ([0.03, 1.0, 0.03], [1.0, 1.0, 0.05], [1.0, 1.0, 1.0]):
        shaped = squeezed(rows, by)
        assert same_pose(turned(shaped, q)) == same_pose(shaped)
