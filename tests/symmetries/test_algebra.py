"""Generators, and the ones that a fitted law commutes with."""

import numpy as np
import pytest
import torch

from benchmarks.symmetry_power import world
from spacetime_en.symmetries.algebra import acted, algebra_of, generators
from spacetime_en.symmetries.rows import sample, typical_distance
from tests.helpers import particles
from tests.symmetries.worlds import jittered


def found(**options):
    sampled = sample(world(runs=200, seed=5, **options))
    return algebra_of(sampled, typical_distance(sampled.graph))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_generators_are_a_basis(n):
    every = generators(n, 1.0, 1.0)
    assert len(every) == n * n + 2 * n
    flat = np.stack([np.concatenate([g.A.ravel(), g.b, g.w]) for g in every])
    assert np.allclose(flat @ flat.T, np.eye(len(every)))


def test_a_boost_moves_the_past_the_other_way():
    graph = particles()
    boost = generators(3, 1.0, 1.0)[-1]
    moved = acted(graph, boost, 0.1)
    torch.testing.assert_close(moved.x[:, -1], graph.x[:, -1])
    torch.testing.assert_close(
        moved.v - graph.v, torch.tensor([0, 0, 0.1]).expand_as(graph.v).double()
    )


def test_the_galilean_algebra():
    assert found().words == "so(2), all translations, all boosts"


def test_a_line_has_translations_and_boosts_only():
    assert found(dims=1).words == "all translations, all boosts"


def test_a_wind_leaves_no_boost():
    words = found(wind=0.5).words
    assert "all translations" in words
    assert "all boosts" not in words


@pytest.mark.parametrize("seed", range(3))
def test_noise_has_no_generators(seed):
    sampled = sample(jittered(200, 7, 2, seed))
    assert algebra_of(sampled, typical_distance(sampled.graph)) is None


def test_values_increase_and_are_as_many_as_generators():
    values = found().values
    assert len(values) == 8
    assert list(values) == sorted(values)
