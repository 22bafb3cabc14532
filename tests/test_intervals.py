"""Intervals: as wide as in theory, and not misled by windows that repeat each other."""

import numpy as np
import pytest

from spacetime_en import intervals
from spacetime_en.intervals import COVERAGE, FEWEST_DRAWN, Groups, mean_intervals


def mean_interval(values, groups):
    (interval,) = mean_intervals(values[None], groups)
    return interval


def by_recording(recordings):
    recordings = np.asarray(recordings)
    return Groups.of(recordings, np.arange(len(recordings)))


def test_an_interval_is_that_of_the_mean_of_independent_values():
    values = np.random.default_rng(0).normal(1.0, 2.0, 400)
    low, high = mean_interval(values, by_recording(np.arange(400)))
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, rel=0.05)
    assert high == pytest.approx(values.mean() + half, rel=0.05)
    assert mean_interval(values, by_recording(np.arange(400))) == (low, high)  # seeded


@pytest.mark.parametrize("count", [5, 12])
def test_nineteen_intervals_of_twenty_hold_the_mean_of_few_recordings_too(count):
    values = np.random.default_rng(0).normal(size=(2_000, count))
    found = mean_intervals(values, Groups(np.arange(count), count, blocks=False))
    assert np.mean([low <= 0 <= high for low, high in found]) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("freedom", "end"), [(4, 2.7764), (9, 2.2622), (29, 2.0452)])
def test_the_ends_are_those_of_students_interval(freedom, end):
    assert COVERAGE == 0.95
    assert intervals._student(freedom) == pytest.approx(end, rel=3e-3)


def test_windows_of_one_recording_count_once():
    """Forty copies of each value say no more than one of each."""
    values = np.random.default_rng(1).normal(size=30)
    once = mean_interval(values, by_recording(np.arange(30)))
    copied = mean_interval(np.repeat(values, 40), by_recording(np.repeat(np.arange(30), 40)))
    assert copied == pytest.approx(once)
    apart = mean_interval(np.repeat(values, 40), by_recording(np.arange(1200)))
    assert apart[1] - apart[0] < 0.3 * (once[1] - once[0])


def test_recordings_weigh_by_their_windows():
    values = np.array([0.0] * 99 + [100.0])
    groups = Groups(np.repeat(np.arange(5), [24, 25, 25, 25, 1]), 5, blocks=False)
    low, high = mean_interval(values, groups)
    assert -1 < low < 1 < high < 10  # (60, if each recording weighed the same)


def test_one_recording_is_cut_into_blocks_of_neighbours():
    steps = np.random.default_rng(2).permutation(400)
    groups = Groups.of(np.zeros(400, dtype=int), steps)
    assert groups.blocks
    assert groups.count == 20
    in_time = groups.of_window[np.argsort(steps)]
    assert (np.diff(in_time) >= 0).all()  # neighbours stay together
    assert groups.describe() == "20 blocks of neighbouring windows"
    assert Groups(np.zeros(3, dtype=int), 1, blocks=True).describe() == (
        "1 block of neighbouring windows"
    )


def test_blocks_do_not_reach_from_one_recording_into_the_next():
    recordings = np.repeat([3, 7, 9], [50, 11, 60])
    groups = Groups.of(recordings, np.arange(121))
    for group in range(groups.count):
        assert len(set(recordings[groups.of_window == group])) == 1
    assert groups.count >= 10


def test_too_few_windows_tell_nothing():
    assert mean_interval(np.ones(1), Groups.of(np.zeros(1, dtype=int), np.zeros(1))) is None
    for count in (2, FEWEST_DRAWN - 1, FEWEST_DRAWN):
        groups = Groups.of(np.zeros(count, dtype=int), np.arange(count))
        assert mean_interval(np.ones(count), groups) == (None if count < FEWEST_DRAWN else (1, 1))


@pytest.mark.parametrize("stride", [1, 3])
def test_no_block_is_shorter_than_a_window(stride):
    steps, span = stride * np.arange(200), 90
    groups = Groups.of(np.zeros(200, dtype=int), steps, span)
    for group in range(groups.count):
        own = steps[groups.of_window == group]
        assert np.ptp(own) + stride >= span
    assert groups.count == 200 * stride // span


def test_several_differences_are_drawn_alike():
    values = np.random.default_rng(3).normal(size=(3, 60))
    groups = by_recording(np.repeat(np.arange(20), 3))
    together = mean_intervals(values, groups)
    for row, interval in zip(values, together, strict=True):
        assert mean_interval(row, groups) == pytest.approx(interval)
