import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en.data.slots import assign_slots


def test_a_thousand_people_thirty_at_a_time_need_thirty_slots():
    first = np.arange(1000)
    slots = assign_slots(first, first + 29)
    assert slots.max() == 29


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=40))
def test_slots_are_never_shared_and_as_few_as_can_be(stays):
    first, duration = np.array(stays).T
    last = first + duration
    slots = assign_slots(first, last)
    there = (np.arange(41)[:, None] >= first) & (np.arange(41)[:, None] <= last)  # (frames, nodes)
    for frame in there:
        assert len(np.unique(slots[frame])) == frame.sum()
    assert slots.max() + 1 == there.sum(1).max()


def test_the_lowest_free_slot_is_taken_by_those_who_come_first():
    assert assign_slots(np.array([3, 0, 0, 2]), np.array([5, 2, 5, 4])).tolist() == [0, 0, 1, 2]
