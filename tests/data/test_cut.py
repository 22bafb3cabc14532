import numpy as np

from spacetime_en.data.cut import Cut

STEPS = np.array([0, 10, 20, 30, 50, 60, 70])


def test_windows_are_all_places_where_the_frames_are_there():
    cut = Cut.find(STEPS, np.array([0, 10, 30]))
    assert cut.frames().tolist() == [[0, 1, 3], [2, 3, 4]]
    assert cut.ends.tolist() == [3, 4]
    assert cut.frames(np.array([1])).tolist() == [[2, 3, 4]]


def test_offsets_may_count_backwards():
    cut = Cut.find(STEPS, np.array([-30, -20, 0]))
    assert cut.anchors.tolist() == cut.ends.tolist() == [3, 4]
    assert cut.frames().tolist() == [[0, 1, 3], [2, 3, 4]]
    assert cut.first.tolist() == [0, 2]


def test_only_windows_that_lie_between():
    cut = Cut.find(STEPS, np.array([0, 10]))
    assert cut.first.tolist() == [0, 1, 2, 4, 5]
    assert cut.between(10, 60).first.tolist() == [1, 2, 4]


def test_times_may_be_off_by_a_share_of_the_offset():
    times = np.array([0, 1.0004, 2.001, 3.5])
    offsets = np.array([0.0, 1.0, 2.0])
    assert Cut.find(times, offsets, 1e-3).frames().tolist() == [[0, 1, 2]]
    assert len(Cut.find(times, offsets, 1e-4)) == 0
