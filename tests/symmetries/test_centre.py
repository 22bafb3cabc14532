"""The centre of a round field, from the motions in it."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.symmetry_power import world
from spacetime_en.symmetries.centre import centre_of
from spacetime_en.symmetries.questions import bounded
from spacetime_en.symmetries.rows import rows_of_windows, sample, typical_distance


@pytest.fixture(scope="module")
def rows():
    sampled = sample(world(runs=200, seed=408, dims=3, trap=0.5))
    rows = rows_of_windows(sampled, typical_distance(sampled.graph))
    return replace(rows, residual=bounded(rows.residual))


def test_it_is_nearer_than_the_mean_place(rows):
    mean = np.linalg.norm(rows.position.mean(0))
    assert mean > 0.09
    assert np.linalg.norm(centre_of(rows, identity=False)) < mean / 3


def test_it_moves_with_the_data(rows):
    by = np.array([4.0, 0.0, -2.0])
    moved = replace(rows, position=rows.position + by)
    expected = centre_of(rows, identity=False) + by
    np.testing.assert_allclose(centre_of(moved, identity=False), expected, atol=1e-6)
