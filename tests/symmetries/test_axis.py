"""The axis that a broken symmetry leaves."""

import numpy as np

from benchmarks.symmetry_power import world
from spacetime_en.symmetries.axis import axis_of
from spacetime_en.symmetries.questions import turning_of
from spacetime_en.symmetries.rows import rows_of_windows, sample, typical_distance


def found(**options):
    sampled = sample(world(runs=200, seed=5, dims=3, **options))
    rows = rows_of_windows(sampled, typical_distance(sampled.graph))
    return axis_of(turning_of(rows, identity=False), rows)


def test_of_a_field():
    assert (found(field=0.5) == [0, 0, 1]).all()


def test_of_an_anisotropic_force():
    assert (np.abs(found(anisotropy=0.3)) == [1, 0, 0]).all()
