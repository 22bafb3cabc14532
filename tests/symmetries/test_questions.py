"""The fields psi of each question. What questions answer is in test_study.py."""

from dataclasses import replace

import numpy as np
import pytest

from spacetime_en.geometry import random_rotation
from spacetime_en.symmetries.partial import FOLDS, REST, folds_of
from spacetime_en.symmetries.questions import Asked, bounded, changed_matrices, cubic_field
from spacetime_en.symmetries.rows import rows_of_windows, sample
from tests.symmetries.worlds import jittered


@pytest.mark.parametrize(("n", "count"), [(2, 2), (3, 8)])
def test_matrices_that_all_rotations_change(n, count):
    matrices = changed_matrices(n)
    assert len(matrices) == count
    mean = np.mean(
        [q @ matrices @ q.T for q in (random_rotation(n).numpy() for _ in range(4000))], axis=0
    )
    assert np.abs(mean).max() < 0.1


def test_matrices_that_rotations_about_an_axis_change():
    axis = np.array([0.0, 0.6, 0.8])
    matrices = changed_matrices(3, axis)
    assert len(matrices) == 6
    assert np.allclose(np.einsum("mij,i,j->m", matrices, axis, axis), 0)


def test_long_residuals_are_shortened_and_keep_their_direction():
    residual = np.random.default_rng(0).standard_normal((1000, 3))
    residual[0] *= 1000
    short = bounded(residual)
    assert np.linalg.norm(short[0]) < 5
    assert np.allclose(np.cross(short, residual), 0, atol=1e-9)
    assert (short == residual).all(1).mean() > 0.98


@pytest.mark.parametrize("axis", [None, np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.6, 0.8])])
def test_cubic_fields_have_no_part_that_rotations_leave(axis):
    u = np.random.default_rng(0).standard_normal((4, 3))
    if axis is None:
        turns = [random_rotation(3).numpy() for _ in range(4000)]
    else:
        A = np.cross(np.eye(3), -axis)
        turns = [
            np.eye(3) + np.sin(a) * A + (1 - np.cos(a)) * A @ A for a in np.arange(0, 6.2, 0.1)
        ]
    mean = np.mean([cubic_field(u @ q.T, axis) @ q for q in turns], axis=0)
    assert np.abs(mean).max() < 0.05 * np.abs(u).max()
    assert np.abs(cubic_field(u, axis)).max() > 0.1


def test_the_law_in_psi_has_no_noise_of_the_rows_that_are_tested():
    asked = Asked.of(rows_of_windows(sample(jittered(60, 7, 2, seed=0)), 1.0), identity=False)
    smoother, folds = asked.smoother(REST), folds_of(asked.rows.group)
    law = asked.law(smoother)
    assert np.abs(law).max() > 0
    for k in range(FOLDS):
        # Neither the fold itself nor those that its other regressions are fitted on matter to it,
        # and it matters to the law of none of these.
        rest = np.flatnonzero(REST[k])
        assert len(rest) == FOLDS // 2
        unseen, own = np.isin(folds, [k, *rest]), folds == k
        changed = replace(asked, residual=asked.residual + 1e-3 * unseen[:, None]).law(smoother)
        assert np.allclose(changed[own], law[own], rtol=0, atol=1e-12)
        changed = replace(asked, residual=asked.residual + 1e-3 * own[:, None]).law(smoother)
        same = np.isin(folds, rest)
        assert np.allclose(changed[same], law[same], rtol=0, atol=1e-12)
        assert not np.allclose(changed, law, rtol=0, atol=1e-6)
