import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from spacetime_en import InputError
from spacetime_en.data import Trajectories, simulate

X = np.random.default_rng(0).standard_normal((3, 6, 4, 2))


def test_arrays_are_taken_with_sensible_defaults():
    t = Trajectories.from_arrays(X, attributes={"mass": np.arange(4.0)}, meta={"unit": "m"})
    assert t.steps.tolist() == t.times.tolist() == [0, 1, 2, 3, 4, 5]
    assert t.attributes["mass"].shape == (3, 4)
    np.testing.assert_allclose(t.v[:, 3], X[:, 3] - X[:, 2])
    np.testing.assert_allclose(t.v[:, 0], X[:, 1] - X[:, 0])
    assert len(Trajectories.from_arrays(X[0])) == 1


def test_velocities_by_differences_take_the_short_way_through_a_box():
    x = np.array([0.9, 0.1, 0.3])[:, None, None]
    t = Trajectories.from_arrays(x, times=[0, 1, 3], box=[1.0])
    np.testing.assert_allclose(t.v.ravel(), [0.2, 0.2, 0.1])


def test_times_that_nobody_gave_fit_positions_and_velocities():
    v = np.random.default_rng(1).standard_normal((3, 1, 4, 2))
    x = X[:, :1] + 0.1 * np.arange(6)[:, None, None] * v
    t = Trajectories.from_arrays(x, np.broadcast_to(v, x.shape))
    np.testing.assert_allclose(t.times, 0.1 * np.arange(6))
    assert t.measured_velocities
    assert not Trajectories.from_arrays(x).measured_velocities


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(x=X, attributes={"v": np.ones(4)}), "attributes: 'v' cannot be the name"),
        (
            dict(x=X, attributes={"mass": np.full(4, np.nan)}),
            "mass: NaN or infinite values at run 0, node 0",
        ),
        (dict(x=X, steps=np.arange(6) / 2), "steps: expected whole numbers"),
        (dict(x=X[0, 0]), r"x: expected shape \(num, T, N, n\)"),
        (dict(x=X * np.inf), "x: NaN or infinite values at run 0, frame 0, node 0"),
        (dict(x=X * np.nan), "x: no node was observed in any frame"),
        (dict(x=X, v=X[:, :2]), "v: expected the shape of x"),
        (dict(x=X, times=[0, 1, 2, 2, 3, 4]), "times: expected 6 increasing numbers"),
        (dict(x=X, attributes={"mass": np.ones(3)}), "mass: expected shape"),
        (dict(x=X, box=[1.0]), "box: expected 2 edge lengths"),
        (dict(x=X[:, :1]), "v: velocities by differences need at least two frames"),
    ],
)
def test_bad_arrays_are_told_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        Trajectories.from_arrays(**arguments)


def test_what_is_saved_comes_back_without_being_read(tmp_path):
    t = Trajectories.from_arrays(
        X, attributes={"charge": np.ones(4)}, box=[5.0, 6.0], meta={"unit": "m"}
    )
    t.save(tmp_path / "set")
    back = Trajectories.open(tmp_path / "set", verify=True)
    assert isinstance(back.x, np.memmap)
    assert np.array_equal(back.x, t.x)
    assert np.array_equal(back.charge, t.charge)
    assert np.array_equal(back.box, t.box)
    assert back.meta["unit"] == "m"


def test_an_existing_set_is_not_overwritten(tmp_path):
    t = Trajectories.from_arrays(X)
    t.save(tmp_path / "set")
    with pytest.raises(InputError, match="exists already"):
        t.save(tmp_path / "set")


def spoil(shard, how):
    x = shard / "x.npy"
    if how == "truncated":
        x.write_bytes(x.read_bytes()[:-50])
    elif how == "changed":
        data = bytearray(x.read_bytes())
        data[-1] ^= 1
        x.write_bytes(data)
    elif how == "without meta":
        (shard / "meta.json").unlink()
    elif how == "a pickle":
        np.save(x, np.array([{}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "cut off or damaged|no array|checksum"),
        ("changed", "its checksum does not fit; delete it"),
        ("without meta", "meta.json: is missing; make the data set again"),
        ("a pickle", "cut off or damaged|no array|checksum"),
    ],
)
def test_spoilt_files_are_told_in_one_sentence(tmp_path, how, message):
    Trajectories.from_arrays(X).save(tmp_path / "set")
    spoil(tmp_path / "set" / "shard-00000-of-00001", how)
    with pytest.raises(InputError, match=message):
        Trajectories.open(tmp_path / "set", verify=True)


def test_folders_without_data_are_told_so(tmp_path):
    with pytest.raises(InputError, match="holds no data set"):
        Trajectories.open(tmp_path)
    with pytest.raises(InputError, match="expected a data set's folder"):
        Trajectories.open(tmp_path / "nowhere")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spacetime_en.data.trajectories.np.ascontiguousarray", full)
    with pytest.raises(OSError, match="No space left"):
        simulate("charged", 4, save=[0, 1], out=tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_nothing_that_looks_whole(tmp_path):
    """Killed while writing, and run again: the set is complete."""
    code = (
        "import sys; from pathlib import Path\n"
        "import numpy as np, time\n"
        "from spacetime_en.data import simulate, trajectories\n"
        "append = trajectories.ShardWriter.append\n"
        "def slow(self, part):\n"
        "    append(self, part); print('writing', flush=True); time.sleep(30)\n"
        "trajectories.ShardWriter.append = slow\n"
        f"simulate('charged', 4, save=[0, 1], out=Path({str(tmp_path / 'set')!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with pytest.raises(InputError, match="holds no data set"):
        Trajectories.open(tmp_path / "set")
    t = simulate("charged", 4, save=[0, 1], out=tmp_path / "set")
    assert len(t) == 4


def test_the_origin_is_zero_for_data_that_are_near_it():
    for x in (X, X + 10, 1e6 * X, 1e-6 * X, np.zeros((1, 2, 1, 2)), simulate("charged", 3).x):
        assert not Trajectories.from_arrays(x, x).origin.any()


def test_the_origin_of_data_far_away_is_a_round_number_near_them():
    for b in ([5e6, 4.5e5], [1e5, 0.0], [-5e6 - 1 / 3, 9.0]):
        t = Trajectories.from_arrays(X + np.array(b), X)
        assert (abs(t.origin - b) < [2, 10]).all()
        assert (t.origin[1] == 0) == (b[1] < 10)  # along an axis on which they are near
        assert np.array_equal((t.x - t.origin) + t.origin, t.x)  # nothing is lost
        assert (t.origin * 8 == np.round(t.origin * 8)).all()
    one = Trajectories.from_arrays(np.full((1, 1, 1, 2), 5e6 + 0.25), np.ones((1, 1, 1, 2)))
    assert one.origin.tolist() == [5e6, 5e6]  # a single point, which has no spread


def test_zeros_for_missing_markers_do_not_move_the_origin():
    x = X + 5e6
    x[:, :2, 0] = 0.0
    assert (abs(Trajectories.from_arrays(x, X).origin - 5e6) < 2).all()


def test_frames_that_only_fill_up_do_not_count_for_the_origin():
    t = Trajectories.from_runs([X[0] + 5e6, X[1, :2] + 5e6])
    assert t.lengths.tolist() == [6, 2]
    t.x[1, 2:] = np.nan
    assert (abs(t.origin - 5e6) < 2).all()


# --- nodes that come and go ----------------------------------------------------------------------


def passers_by(seed=0):
    """Two recordings of nine people in three slots, with gaps."""
    rng = np.random.default_rng(seed)
    ids = np.full((2, 12, 3), -1)
    for run in range(2):
        for slot in range(3):
            ids[run, slot : slot + 4, slot] = 3 * slot
            ids[run, slot + 4 : 11, slot] = 3 * slot + 1
    observed = (ids >= 0) & (rng.random(ids.shape) < 0.8)
    x = rng.standard_normal((*ids.shape, 2)) + 7
    return x, observed, ids


def test_nan_stands_for_a_node_that_was_not_observed():
    x = X.copy()
    x[1, 2:4, 3] = np.nan
    t = Trajectories.from_arrays(x)
    assert t.meta["missing"] == "nan"
    assert not t.observed[1, 2:4, 3].any()
    assert t.observed.sum() == t.observed.size - 2
    assert not t.x[1, 2:4, 3].any()
    assert not t.v[1, 2:4, 3].any()
    np.testing.assert_allclose(t.v[1, 4, 3], (x[1, 4, 3] - x[1, 1, 3]) / 3)  # over the gap
    assert "missing" not in Trajectories.from_arrays(X).meta
    assert Trajectories.from_arrays(X, observed=np.ones((3, 6, 4))).observed is None


def test_velocities_are_differences_of_a_nodes_own_observations():
    x, observed, ids = passers_by()
    times = np.cumsum(np.arange(1, 13)) / 3.0
    t = Trajectories.from_arrays(x, times=times, observed=observed, ids=ids)
    for run in range(2):
        for node in np.unique(ids[run][ids[run] >= 0]):
            frames, slots = np.nonzero((ids[run] == node) & observed[run])
            for i, (frame, slot) in enumerate(zip(frames, slots, strict=True)):
                a, b = (i - 1, i) if i else (0, 1)
                want = np.zeros(2)
                if len(frames) > 1:
                    step = x[run, frames[b], slot] - x[run, frames[a], slot]
                    want = step / (times[frames[b]] - times[frames[a]])
                np.testing.assert_allclose(t.v[run, frame, slot], want)
    assert not t.v[~observed].any()


def test_velocities_over_a_gap_take_the_short_way_through_a_box():
    x = np.array([0.9, np.nan, 0.1, 0.3])[:, None, None]
    t = Trajectories.from_arrays(x, box=[1.0])
    np.testing.assert_allclose(t.v.ravel(), [0.1, 0, 0.1, 0.2])


def test_times_fit_positions_and_velocities_where_both_were_observed():
    v = np.random.default_rng(1).standard_normal((1, 1, 3, 2))
    x = 0.1 * np.arange(12)[:, None, None] * np.broadcast_to(v, (2, 12, 3, 2))
    _, observed, ids = passers_by()
    x[~observed] = 1e6
    v = np.where(observed[..., None], v, np.nan)
    t = Trajectories.from_arrays(x, v, observed=observed, ids=ids)
    np.testing.assert_allclose(t.times, 0.1 * np.arange(12))


def test_tracks_that_are_saved_come_back(tmp_path):
    x, observed, ids = passers_by()
    age = np.random.default_rng(1).random(ids.shape)
    t = Trajectories.from_arrays(x, observed=observed, ids=ids, frame_attributes={"age": age})
    back = Trajectories.open(t.save(tmp_path / "set"), verify=True)
    for name in ("x", "v", "observed", "ids"):
        assert isinstance(getattr(back, name), np.memmap)
        assert np.array_equal(getattr(back, name), getattr(t, name))
    assert np.array_equal(back.frame_attributes["age"], np.where(observed, age, 0))
    assert back.ids.dtype == np.int64
    assert back.attributes == {}


def test_everything_inside_makes_the_fingerprint():
    x, observed, ids = passers_by()
    fields = dict(observed=observed, ids=ids, frame_attributes={"age": ids + 0.5})
    one = Trajectories.from_arrays(x, **fields).fingerprint
    assert one == Trajectories.from_arrays(x, **fields).fingerprint
    for change in (
        dict(ids=np.where(ids == 4, 14, ids)),
        dict(frame_attributes={"size": ids + 0.5}),
        dict(frame_attributes={"age": ids + 1.0}),
        dict(frame_attributes={}),
    ):
        assert Trajectories.from_arrays(x, **fields | change).fingerprint != one


def test_only_what_was_observed_counts_for_the_origin():
    x, observed, ids = passers_by()
    t = Trajectories.from_arrays(x + 5e6, observed=observed & (ids == 4), ids=ids)
    assert (abs(t.origin - 5e6) < 16).all()


def test_runs_with_gaps_are_not_observed_where_they_are_filled_up():
    x = X[0].copy()
    x[-1, 2] = np.nan
    t = Trajectories.from_runs([x[-2:], x])
    assert t.observed.sum(2).tolist() == [[4, 3, 0, 0, 0, 0], [4, 4, 4, 4, 4, 3]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(observed=np.ones((2, 3))), r"observed: expected shape \(2, 12, 3\)"),
        (dict(observed=np.full((2, 12, 3), 2)), "observed: expected True or False"),
        (dict(observed=np.ones((2, 12, 3))), "ids: expected a node's number of 0 or more"),
        (dict(ids=np.full((2, 12, 3), 4)), "ids: node 4 of run 0 is in several slots"),
        (dict(ids=np.ones((2, 12, 3)) / 2), "ids: expected whole numbers"),
        (dict(attributes={"mass": np.ones(3)}), "mass: is an attribute of slots"),
        (dict(frame_attributes={"age": np.ones(3)}), r"age: expected shape \(2, 12, 3\)"),
        (dict(frame_attributes={"ids": np.ones((2, 12, 3))}), "'ids' cannot be the name"),
        (
            dict(frame_attributes={"age": np.full((2, 12, 3), np.nan)}),
            "age: NaN or infinite values at run 0, frame",
        ),
    ],
)
def test_bad_tracks_are_told_in_one_sentence(change, message):
    x, observed, ids = passers_by()
    with pytest.raises(InputError, match=message):
        Trajectories.from_arrays(x, **dict(observed=observed, ids=ids) | change)


def test_half_a_position_is_no_position():
    x = X.copy()
    x[1, 2, 3, 0] = np.nan
    with pytest.raises(InputError, match="run 1, frame 2, node 3 only some coordinates are NaN"):
        Trajectories.from_arrays(x)
