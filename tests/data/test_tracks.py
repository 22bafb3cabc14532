import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories, tracks

RNG = np.random.default_rng(0)


def table(rows, names=("frame", "id", "x", "y"), **options):
    """From rows (frame, id, x, y)."""
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return Trajectories.from_table(columns, notify=lambda text: None, **options)


def walk(frames, node, step=1.0):
    return [(frame, node, step * frame, node) for frame in frames]


def observations(t):
    """Every observation as (recording, frame number, id, x...), found by plain loops."""
    found = []
    names = t.meta.get("node_names")
    for run, first in enumerate(t.meta["first_frames"]):
        length = t.x.shape[1] if t.lengths is None else t.lengths[run]
        for i in range(length):
            for slot in range(t.x.shape[2]):
                if t.observed is not None and not t.observed[run, i, slot]:
                    assert (t.x[run, i, slot] == 0).all()
                    continue
                number = slot if t.ids is None else t.ids[run, i, slot]
                name = number if names is None else names[number]
                name = int(name) if str(name).isdigit() else name
                frame = first + t.steps[i]
                found.append((run, int(frame), name, *t.x[run, i, slot].tolist()))
    return sorted(found)


def random_rows(people=40, recordings=3, step=10):
    rows = []
    for recording in range(recordings):
        for person in range(people):
            start, length = RNG.integers(50), RNG.integers(1, 12)
            for frame in range(start, start + length):
                if RNG.random() < 0.9:
                    number = 7 + 100 * recording + step * frame
                    rows.append((f"r{recording}", number, person, *RNG.normal(size=2)))
    RNG.shuffle(rows)
    return [(str(r), int(f), int(i), float(x), float(y)) for r, f, i, x, y in rows]


def test_every_observation_finds_its_place():
    rows = random_rows()
    t = table(rows, names=("scene", "frame", "id", "x", "y"))
    index = t.meta["recordings"].index
    assert observations(t) == sorted((index(r), f, i, x, y) for r, f, i, x, y in rows)
    assert t.x.shape[2] < 20  # slots for forty people
    assert t.frame_interval == 10
    assert (t.ids[t.observed] >= 0).all()


def test_a_node_keeps_its_slot_through_gaps_and_then_another_has_it():
    t = table([*walk([0, 1, 3], 5), *walk([1, 2], 6), *walk([4, 5], 7)])
    assert t.ids[0].tolist() == [[5, -1], [5, 6], [5, 6], [5, -1], [7, -1], [7, -1]]
    assert t.observed[0].tolist() == [
        [True, False],
        [True, True],
        [False, True],
        [True, False],
        [True, False],
        [True, False],
    ]
    assert (
        "1 recording, 3 nodes, at most 2 at a time; 6 frames, 1 frame number apart"
        in (t.meta["notes"])
    )
    assert any(
        "87.5 %" in note and "1 gap, the longest of 1 frame" in note for note in t.meta["notes"]
    )


def test_nodes_that_are_always_there_need_no_slots():
    t = table([*walk([3, 4, 5], 9), *walk([3, 4, 5], 2)])
    assert t.ids is None
    assert t.observed is None
    assert t.meta["node_names"] == ["2", "9"]
    assert t.x[0, :, 1, 0].tolist() == [3, 4, 5]
    t = table([*walk(range(3), 0), *walk(range(3), 1)])
    assert "node_names" not in t.meta


def test_recordings_of_different_lengths():
    rows = [(r, *row) for r, n in (("a", 3), ("b", 5)) for row in walk(range(n), 0)]
    t = table(rows, names=("scene", "frame", "id", "x", "y"))
    assert t.lengths.tolist() == [3, 5]
    assert t.x[0, :, 0, 0].tolist() == [0, 1, 2, 2, 2]  # the last frame is the padding
    assert t.meta["recordings"] == ["a", "b"]


def test_names_numbers_and_names_that_look_like_numbers():
    named = table([(f, "ab"[f // 2], float(f), 0.0) for f in range(4)])
    assert named.meta["node_names"] == ["a", "b"]
    assert named.ids[0, :, 0].tolist() == [0, 0, 1, 1]
    for odd in (-1, 2**60):
        t = table([(0, odd, 0.0, 0.0), (1, odd, 1.0, 0.0), (2, 4, 0.0, 0.0), (3, 4, 0.0, 0.0)])
        assert t.meta["node_names"][t.ids[0, 0, 0]] == str(odd)


# --- the grid -------------------------------------------------------------------------------------


def test_negative_and_float_frames():
    t = table(walk([-20.0, -10.0, 0.0, 20.0], 1))
    assert t.meta["first_frames"] == [-20]
    assert t.steps.tolist() == [0, 10, 20, 30, 40]
    assert t.times.tolist() == [0, 10, 20, 30, 40]
    assert t.observed[0, :, 0].tolist() == [True, True, True, False, True]


def test_time_of_a_frame():
    rows = walk(range(0, 50, 10), 1)
    assert table(rows, time_step=0.4).times[1] == 0.4
    timed = [(f, f / 25, i, x, y) for f, i, x, y in rows]
    t = table(timed, names=("frame", "time", "id", "x", "y"))
    assert t.times[1] == pytest.approx(0.4)
    assert t.meta["time_step"] == "from the column time"
    fast = [(f, i, x / 25, y, 1.0, 0.0) for f, i, x, y in rows]
    t = table(fast, names=("frame", "id", "x", "y", "vx", "vy"))
    assert t.times[1] == pytest.approx(0.4)
    assert t.measured_velocities


def test_a_clock_with_rounded_times_does_not_drift():
    times = np.round(np.arange(10_000) / 30, 3)
    t = table([(time, 1, 0.0, 0.0) for time in times], names=("t", "id", "x", "y"))
    assert t.x.shape[1] == 10_000
    assert t.observed is None
    assert t.times[1] == pytest.approx(1 / 30, rel=1e-6)


def test_irregular_times_go_to_the_nearest_frame():
    times = np.arange(200) + RNG.uniform(-0.3, 0.3, 200)
    late = [(time + 0.5, 2, 0.0, 0.0) for time in times]  # a clock of its own
    rows = [*((time, 1, float(i), 0.0) for i, time in enumerate(times)), *late]
    t = table(rows, names=("time", "id", "x", "y"))
    assert t.times[1] == pytest.approx(1, abs=0.01)
    assert any("put on the nearest frame" in note for note in t.meta["notes"])
    assert t.x.shape[2] == 2


def test_of_two_observations_in_a_cell_the_nearer_one_stays():
    rows = [*walk([0, 10, 20, 30], 1), (22, 1, 99.0, 0.0)]
    t = table(rows)
    assert t.x[0, :, 0, 0].tolist() == [0, 10, 20, 30]
    notes = " ".join(t.meta["notes"])
    assert "1 row between frames, by up to 0.2 of a step" in notes
    assert "1 row left out: another of the same node is nearer" in notes


def test_a_step_that_the_user_gives():
    t = table(walk(range(10), 1), frame_step=2)
    assert t.x.shape[1] in (5, 6)
    assert t.frame_interval == 2
    with pytest.raises(InputError, match="frame_step: expected"):
        table(walk(range(10), 1), frame_step=0)


def test_gaps_are_filled_by_straight_lines_if_asked():
    rows = [
        (0, 1, 0.0, 0.0),
        (3, 1, 3.0, 6.0),
        (8, 1, 0.0, 0.0),
        (9, 1, 1.0, 0.0),
        (10, 1, 2.0, 0.0),
    ]
    t = table(rows, interpolate=2)
    assert t.observed[0, :, 0].tolist() == [True] * 4 + [False] * 4 + [True] * 3
    assert t.x[0, :4, 0].tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
    assert t.v[0, :4, 0].tolist() == [[1, 2]] * 4
    assert "2 frames filled in" in " ".join(t.meta["notes"])
    whole = table(rows, interpolate=4)
    assert whole.observed is None
    assert whole.v[0, 5, 0] == pytest.approx([-0.6, -1.2])


def test_velocities_are_differences_over_the_true_time():
    t = table(
        [(0, 1, 0.0, 0.0), (1, 1, 1.0, 0.0), (4, 1, 7.0, 3.0), (2, 2, 5.0, 5.0)], time_step=0.5
    )
    assert t.v[0, :, 0].tolist() == [[2, 0], [2, 0], [0, 0], [0, 0], [4, 2]]
    assert (t.v[0, :, 1] == 0).all()  # seen once
    again = Trajectories.from_arrays(t.x, times=t.times, observed=t.observed, ids=t.ids)
    assert np.array_equal(again.v, t.v)


def test_attributes_of_nodes_and_of_frames():
    names = ("frame", "id", "x", "y", "mass", "speed")
    rows = [(f, i, 0.0, 0.0, 10.0 + i, float(f)) for f in range(3) for i in range(2)]
    t = table(rows, names, attributes=("mass", "speed"))
    assert t.attributes["mass"].tolist() == [[10, 11]]
    assert t.frame_attributes["speed"][0].tolist() == [[0, 0], [1, 1], [2, 2]]
    t = table(rows[:-1], names)
    assert list(t.frame_attributes) == ["mass"]
    assert t.frame_attributes["mass"][0].tolist() == [[10, 11], [10, 11], [10, 0]]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_not_observed(nothing):
    t = table([*walk(range(4), 1), *walk([0, 1], 2), (2, 2, nothing, 0.0), *walk([3], 2)])
    assert t.observed[0, :, 1].tolist() == [True, True, False, True]
    assert "1 row with NaN, infinite or missing positions: not observed" in t.meta["notes"]


def test_rows_without_a_position_are_frames_all_the_same():
    t = table([(f, 1, np.nan if f in (0, 1, 3) else float(f), 0.0) for f in range(6)])
    assert t.x.shape[1] == 6
    assert t.observed[0, :, 0].tolist() == [False, False, True, False, True, True]
    rows = [(r, *row) for r in "ab" for row in walk(range(3), 1)]
    rows += [("empty", 0, 1, np.nan, np.nan)]
    t = table(rows, ("scene", "frame", "id", "x", "y"))
    assert t.meta["recordings"] == ["a", "b"]


def test_rows_in_another_order_are_sorted():
    rows = walk(range(5), 1)
    t = table(rows[::-1])
    assert t.x[0, :, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert "times go back at 4 rows: sorted" in t.meta["notes"]


def test_velocities_that_are_missing_in_some_rows():
    rows = [(0, 1, 0.0, 0.0, np.nan, 0.0), (1, 1, 1.0, 0.0, 5.0, 0.0)]
    t = table(rows, names=("frame", "id", "x", "y", "vx", "vy"))
    assert not t.measured_velocities
    assert "velocities: 1 are missing; differences of positions are taken" in t.meta["notes"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [*walk(range(3), 1), (1, 1, 9.0, 9.0)],
            "table, row 3: a second row for id 1 at frame 1, after row 1; keep one",
        ),
        ([(0, 1, 0.0, 0.0)], "all rows are of one frame; differences need two, or velocities"),
        ([(0, 1, np.nan, 0.0)], "no row has a position"),
        ([(0, 1, 1e39, 0.0), (1, 1, 0.0, 0.0)], "x: 1e+39 at run 0, frame 0, node 0 is beyond"),
        (walk([0, 1, 10**12], 1), "from 0 to 1e+12 in steps of 1 there are 1e+12 frames"),
        (walk([0, 1, 1e300], 1), "1,500,000 are the most; is it the column of the frame?"),
    ],
)
def test_refused_in_one_sentence(rows, words):
    with pytest.raises(InputError) as caught:
        table(rows)
    assert words in str(caught.value)


def test_an_attribute_that_is_missing():
    with pytest.raises(InputError, match="table, row 1: mass: is missing"):
        table([(0, 1, 0.0, 0.0, 1.0), (1, 1, 0.0, 0.0, np.nan)], ("frame", "id", "x", "y", "mass"))


def test_a_million_frames_far_apart():
    frames = 10**6 * np.arange(10**6) + np.arange(10**6) % 7
    columns = {"frame": frames, "id": np.ones(10**6, int), "x": frames * 0.0, "y": frames * 0.0}
    with pytest.raises(InputError, match=r"1e\+12 frames, and 1,500,000 are the most"):
        Trajectories.from_table(columns, notify=lambda text: None, frame_step=1)


def test_a_grid_that_does_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr("spacetime_en._util.machine.free_memory", lambda: 1_000_000)
    with pytest.raises(InputError, match="100,001 frames of all recordings: to read it takes"):
        table(walk([0, 1, 100_000], 1))


def test_pieces_and_the_whole_are_the_same(monkeypatch):
    rows = random_rows()
    names = ("scene", "frame", "id", "x", "y")
    whole = table(rows, names)
    monkeypatch.setattr(tracks, "_AT_ONCE", 7)
    assert table(rows, names).fingerprint == whole.fingerprint
