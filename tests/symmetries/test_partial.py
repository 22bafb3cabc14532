"""The test of conditional independence, on numbers whose answer is known."""

import numpy as np
import pytest

from spacetime_en.intervals import Groups
from spacetime_en.symmetries.partial import FOLDS, NEXT, Smoother, folds_of, weigh

ROWS = 600


def evidence(effect, seed, tied=0.5):
    """y = c^2 + effect psi + noise, where psi follows c by the share `tied`."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(-(3**0.5), 3**0.5, ROWS)
    psi = tied * c + np.sqrt(1 - tied**2) * rng.standard_normal(ROWS)
    y = np.square(c) + effect * psi + 0.3 * rng.standard_normal(ROWS)
    group = np.arange(ROWS) // 4
    groups = Groups(group, ROWS // 4, blocks=False)
    basis = np.stack([c, c**2, c**3], axis=1)
    smoother = Smoother.of(basis, folds_of(group))
    return weigh(smoother, y[:, None], psi[:, None, None], groups, group)


def test_folds_keep_groups_together():
    group = np.repeat(np.arange(23), 3)
    folds = folds_of(group)
    assert set(folds) == set(range(FOLDS))
    assert all(len(set(folds[group == g])) == 1 for g in range(23))


def test_an_effect_is_found_and_measured():
    found = evidence(0.2, seed=0)
    assert found.p < 0.001
    assert found.interval[0] > 0
    left = 0.2**2 * 0.75  # what psi adds once c is known
    assert found.gain == pytest.approx(left / (left + 0.09), rel=0.4)


def test_p_values_are_uniform_without_an_effect():
    p = np.array([evidence(0.0, seed).p for seed in range(100)])
    assert 0.0 <= (p < 0.05).mean() <= 0.12
    assert 0.35 < p.mean() < 0.65


def test_the_interval_covers_what_few_rows_cannot_gain():
    """Of eighteen fields one matters, and the noise of all weights costs more than it gains."""
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        psi = rng.standard_normal((ROWS, 18))
        y = 0.04 * psi[:, 0] + 0.3 * rng.standard_normal(ROWS)
        group = np.arange(ROWS) // 4
        groups = Groups(group, ROWS // 4, blocks=False)
        smoother = Smoother.of(rng.standard_normal((ROWS, 1)), folds_of(group))
        found = weigh(smoother, y[:, None], psi[:, :, None], groups, group)
        covered += found.interval[0] < 0.04**2 / (0.04**2 + 0.09) < found.interval[1]
    assert covered >= 16


def test_what_c_tells_is_no_evidence():
    found = evidence(0.0, seed=0, tied=1.0)
    assert found.p is None
    assert found.spread < 0.01


def test_a_fold_that_is_fitted_on_nothing_is_forecast_as_nothing():
    c = np.random.default_rng(0).standard_normal((200, 1))
    folds = np.arange(200) % (FOLDS - 2)  # the last two have no rows, and the one before no law
    made = Smoother.of(c, folds, NEXT).fits(2 * c)
    alone = folds == FOLDS - 3
    assert (made[alone] == 0).all()
    assert np.allclose(made[~alone], 2 * c[~alone], atol=0.01)


def test_regressions_are_fitted_on_the_folds_that_are_named():
    rng = np.random.default_rng(0)
    c, noise = rng.standard_normal((2, 200, 1))
    folds = np.arange(200) % FOLDS
    only = np.zeros((FOLDS, FOLDS), dtype=bool)
    only[:, 3] = True
    smoother = Smoother.of(c, folds, only)
    y = 2 * c + 0.1 * noise
    other = np.where(folds[:, None] == 3, y, y + 0.01)
    assert np.allclose(smoother.fits(y), 2 * c, atol=0.2)
    assert np.allclose(smoother.fits(y), smoother.fits(other), atol=1e-12)
