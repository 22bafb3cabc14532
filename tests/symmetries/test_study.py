"""Worlds whose symmetries are known: what is broken is found, what holds is left alone."""

import numpy as np
import pytest

from benchmarks.symmetry_power import world
from spacetime_en import InputError
from spacetime_en.data import Task, Trajectories
from spacetime_en.symmetries.study import (
    ASKED_ABOUT,
    OF_SPACE,
    Finding,
    advice_for,
    find_symmetries,
)
from tests.symmetries.worlds import QUARTER, again, jittered

SPACE = {"translation", "rotation", "reflection", "permutation"}


def broken(report, names=SPACE):
    return {f.name for f in report.findings if f.name in names and "broken" in f.verdict}


@pytest.fixture(scope="module")
def symmetric():
    return find_symmetries(world(runs=150, seed=3))


def test_a_symmetric_world(symmetric):
    assert broken(symmetric, set(ASKED_ABOUT)) <= {"scale"}  # the pull has a length of its own
    assert "equivariant to E(n)" in symmetric.advice[0]
    assert symmetric["rotation"].score[2] < 0.02
    assert symmetric.explained > 0.9


def test_a_forecast_with_a_length_of_its_own_does_not_scale(symmetric):
    assert symmetric["scale"].verdict == "broken"


@pytest.mark.slow
def test_directions_that_are_not_spread_are_no_evidence():
    """All walk along x; the law is as symmetric as before."""
    report = find_symmetries(world(runs=150, seed=3, along_x=True))
    assert broken(report) == set()
    for name in ("boost", "rotation", "reflection"):
        assert report[name].verdict == "untested"
        assert report[name].score is None
    assert report["rotation"].words == "all windows head the same way"
    assert "an up cannot be told" in report.advice[0]


CASES = {
    "wind": ({"wind": 0.5}, {"rotation"}, True),
    "walls": ({"wall": 2.0}, {"translation"}, None),
    "anisotropy": ({"anisotropy": 0.3}, {"rotation"}, False),
    "left is not right": ({"swirl": 0.3}, {"reflection"}, True),
    "one node is another": ({"favourite": 0.3}, {"permutation"}, False),
    "drag": ({"drag": 0.5}, set(), True),
    "clipped forces": ({"clip": 0.5}, {"rotation"}, False),
}


SLOW = set(CASES) - {"wind"}  # (half a minute each)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES]
)
def test_what_breaks_is_found_and_nothing_else(case):
    options, expected, boosts = CASES[case]
    report = find_symmetries(world(runs=200, seed=5, **options))
    found = {name for name in SPACE if report[name].verdict == "broken"}
    assert found - ({"rotation"} if case == "walls" else set()) == expected
    if boosts is not None:
        assert (report["boost"].verdict == "broken") == boosts
    assert report.axis == ((-1, 0) if case == "wind" else None)


@pytest.mark.parametrize(("runs", "frames", "dims"), [(200, 7, 2), (1, 600, 3)])
def test_noise_is_the_same_at_all_times(runs, frames, dims):
    """The noise of a fit must not pass for a law that changes."""
    tasks = (jittered(runs, frames, dims, seed) for seed in range(8))
    found = [find_symmetries(task, only=("time shift",))["time shift"] for task in tasks]
    assert np.median([f.p for f in found]) > 0.1
    assert not any("broken" in f.verdict for f in found)


def test_mirrors_hold_however_the_coordinates_lie():
    """A field in the plane is an up: mirrors that contain it hold."""
    for turn, up in ((None, (0, 1)), (QUARTER, (-(0.5**0.5), 0.5**0.5))):
        report = find_symmetries(again(world(field=0.5, seed=5), turn), only=SPACE)
        assert broken(report) == {"rotation"}
        assert report.axis == pytest.approx(up, abs=0.01)
        assert "Mirrors that contain" in report.advice[0]


def test_without_an_up_the_mirrors_of_a_turned_force_hold():
    task = again(world(runs=200, seed=5, anisotropy=0.3), QUARTER)
    report = find_symmetries(task, only=SPACE)
    assert broken(report) == {"rotation"}
    assert report.axis is None


def test_a_field_on_a_line_is_an_up():
    report = find_symmetries(world(runs=150, seed=3, dims=1, field=0.5), only=SPACE)
    assert report["reflection"].verdict == "broken"
    assert report.axis == (1,)
    assert "--task.up 1 " in report.advice[0]
    assert "cannot express" not in " ".join(report.advice)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("nodes", "length", "noise"), [(1, 1, 0.02), (1, 4, 0.02)])
def test_what_falls_has_an_up_that_points_upwards(nodes, length, noise, seed):
    fall = world(runs=200, seed=seed, dims=3, nodes=nodes, field=0.5, noise=noise)
    assert find_symmetries(again(fall, length=length), only=SPACE).axis == (0, 0, 1)


def test_what_is_significant_and_may_be_drift_is_unclear():
    report = find_symmetries(world(runs=200, seed=2000, drag=0.1), only=("boost",))
    boost = report["boost"]
    assert boost.p < 0.001
    assert boost.score[1] < 0.02
    assert boost.verdict == "unclear"


def test_unclear_symmetries_of_space_ask_for_a_comparison():
    score = (0.1, 0.0, 0.2)
    findings = tuple(Finding(name, "unclear", score, 1e-4) for name in ("rotation", "time shift"))
    (said,) = advice_for(findings, None, None)
    assert "Whether rotation may be taken for granted is unclear" in said


@pytest.mark.slow
def test_a_field_leaves_the_rotations_about_it():
    report = find_symmetries(world(runs=200, seed=5, dims=3, field=0.5))
    assert broken(report) == {"rotation"}
    assert report.axis == (0, 0, 1)  # against the field
    assert "--task.up 0 0 1" in report.advice[0]
    assert report.algebra.words.startswith("so(2) about (")
    assert report["boost"].verdict == "holds"  # what falls, falls in a train, too


@pytest.fixture(scope="module")
def trapped():
    """In a round trap, whose centre the mean place misses by 0.09."""
    return find_symmetries(world(runs=200, seed=408, dims=3, trap=0.5))


def test_a_round_trap_leaves_rotations(trapped):
    assert broken(trapped) == {"translation"}
    assert trapped.axis is None
    assert "--task.up" not in " ".join(trapped.advice)


def test_boosts_leave_last_positions_alone(trapped):
    """A field that depends on the place alone is no evidence against them, in either sense."""
    assert "broken" not in trapped["boost"].verdict
    assert "all boosts" in trapped.algebra.words


def test_an_anisotropic_force_in_a_round_trap_is_found():
    task = world(runs=200, seed=404, dims=3, trap=0.5, anisotropy=0.3)
    report = find_symmetries(task, only=("translation", "rotation"))
    assert broken(report) == {"translation", "rotation"}
    assert np.abs(report.axis).tolist() == [1, 0, 0]


def test_no_axis_without_a_broken_rotation():
    """Rotations that are barely broken (here by 1 %) give no up."""
    task = world(runs=400, seed=4, dims=3, anisotropy=0.04)
    report = find_symmetries(task, only=("rotation",))
    assert report["rotation"].verdict == "slightly broken"
    assert report.axis is None


def test_a_line_has_no_rotations():
    report = find_symmetries(world(runs=150, seed=3, dims=1))
    assert report["rotation"].verdict == "untested"
    assert report["rotation"].words == "a line has none"
    assert report["reflection"].verdict == "holds"
    assert broken(report) == set()
    assert not any("an up" in said for said in report.advice)


def test_a_field_on_a_line_does_not_tell_about_mirrors():
    report = find_symmetries(world(runs=150, seed=3, dims=1, trap=0.5))
    assert report["translation"].verdict == "broken"
    assert report["reflection"].verdict == "untested"


@pytest.mark.parametrize("seed", range(4))
def test_gaps_are_no_place(seed):
    task = world(runs=200, seed=seed, nodes=6, gaps=0.15)
    assert find_symmetries(task, only=("translation",))["translation"].verdict != "broken"


def test_what_turns_left_breaks_time_reversal_and_mirrors():
    report = find_symmetries(world(runs=200, seed=5, swirl=0.5))
    assert report["time reversal"].verdict == "broken"
    assert report["reflection"].verdict == "broken"
    assert "cannot express that" in report.advice[-1]


def test_what_a_report_says_in_json(symmetric):
    said = symmetric.to_json()
    assert set(said["symmetries"]) == set(ASKED_ABOUT)
    assert said["level"] == 0.05
    assert said["axis"] is None


@pytest.mark.slow
def test_the_same_data_give_the_same_report(symmetric):
    assert find_symmetries(world(runs=150, seed=3)).to_json() == symmetric.to_json()


def test_questions_about_space_only():
    told = []
    report = find_symmetries(world(runs=60, seed=1), told.append, only=OF_SPACE)
    assert [f.name for f in report.findings] == list(OF_SPACE)
    assert report.algebra is None
    assert told == [1] * (len(OF_SPACE) + 1)


@pytest.mark.slow
def test_more_rows_find_weaker_effects():
    task = world(runs=1000, seed=4, anisotropy=0.03)
    few, many = (find_symmetries(task, only=OF_SPACE, most_rows=rows) for rows in (600, 9000))
    assert few["rotation"].verdict == "holds"
    assert many["rotation"].verdict != "holds"
    assert many["rotation"].p < 0.001 < few["rotation"].p
    assert few.windows < many.windows


def test_too_few_windows():
    few = world(runs=12)
    with pytest.raises(InputError, match="too few to tell a symmetry from chance"):
        find_symmetries(few)
    with pytest.raises(InputError, match=r"100 in 12, or more rows than 9 \(--rows\)\."):
        find_symmetries(few, most_rows=9)
    with pytest.raises(InputError, match=r"60 windows .* or more rows than 6,000 \(--rows\)\."):
        find_symmetries(world(runs=20, nodes=100, frames=12))
    with pytest.raises(InputError, match="rows: expected 1 or more, found 0"):
        find_symmetries(few, most_rows=0)


def test_straight_lines_have_nothing_to_break():
    rng = np.random.default_rng(0)
    x, v = rng.integers(-8, 8, (2, 200, 1, 3, 2)).astype(float)
    lines = Trajectories.from_arrays(x + v * np.arange(5.0)[:, None, None], v.repeat(5, axis=1))
    with pytest.raises(InputError, match="straight lines"):
        find_symmetries(Task.from_trajectories(lines, length=2, stride=1, target_steps=1))


@pytest.mark.parametrize("measured", [True, False])
def test_rounding_is_no_law(measured):
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 200, 1, 3, 2))
    paths = x + v * (0.1 * np.arange(8))[:, None, None]
    lines = Trajectories.from_arrays(
        paths, v.repeat(8, axis=1) if measured else None, times=0.1 * np.arange(8)
    )
    with pytest.raises(InputError, match="straight lines"):
        find_symmetries(Task.from_trajectories(lines, length=4, stride=1, target_steps=1))


def test_steps_are_told():
    told = []
    find_symmetries(world(runs=60, seed=1), told.append)
    assert told == [1] * (len(ASKED_ABOUT) + 1)
