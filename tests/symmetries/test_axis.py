"""Directions that remain when a symmetry is broken."""

from dataclasses import replace

import numpy as np

from benchmarks.symmetry_power import world
from spacetime_en.symmetries.axis import axes_of, mirrors_of
from spacetime_en.symmetries.questions import turning_of
from spacetime_en.symmetries.rows import rows_of_windows, sample, typical_distance
from tests.symmetries.worlds import QUARTER, again


def broken(task):
    sampled = sample(task)
    return turning_of(rows_of_windows(sampled, typical_distance(sampled.graph)), identity=False)


def of_space(**options):
    return broken(world(runs=200, seed=5, dims=3, **options))


def test_of_a_field():
    assert (axes_of(of_space(field=0.5))[0] == [0, 0, 1]).all()


def test_it_points_upwards_whatever_windows_leave_to_be_fitted():
    turning = of_space(field=0.5)
    shown = replace(turning, left=-turning.left)
    assert (axes_of(shown)[0] == [0, 0, 1]).all()


def test_of_an_anisotropic_force():
    assert (np.abs(axes_of(of_space(anisotropy=0.3))[0]) == [1, 0, 0]).all()


def test_in_the_plane_it_is_against_the_field():
    (found,) = axes_of(broken(again(world(runs=200, seed=5, field=0.5), QUARTER)))
    assert np.allclose(found, [-(0.5**0.5), 0.5**0.5], atol=0.02)


def test_in_the_plane_an_anisotropic_force_has_no_up():
    assert axes_of(broken(world(runs=200, seed=5, anisotropy=0.3))) == []


def test_mirrors_of_an_anisotropic_force_are_along_and_across_it():
    task = again(world(runs=200, seed=5, anisotropy=0.3), QUARTER)
    along = np.array([0.5**0.5, 0.5**0.5])
    assert max(abs(normal @ along) for normal in mirrors_of(broken(task))) > 0.99
