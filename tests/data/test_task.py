import numpy as np
import pytest

from spacetime_en import InputError, build_model
from spacetime_en.data import Task, Trajectories, Windows, simulate
from spacetime_en.data.task import suggest_windows
from spacetime_en.metrics import errors, summary


def spoilt(how):
    t = simulate("charged", 30)
    x, v = t.x.copy(), t.v.copy()
    if how == "zero":  # the paper's own data: the target frame was never written
        x[:, -1] = v[:, -1] = 0
    elif how == "constant":
        x[:, -1] = x[:1, -1]
    elif how == "given away":
        x[:, -1] = x[:, 3]
    elif how == "nan":
        x[0, -1, 0, 0] = np.nan
    return Trajectories(x, v, t.steps, t.times, t.attributes)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("zero", "all target positions are zero; was the target frame ever written"),
        ("constant", "all targets are the same"),
        ("given away", "100% of the targets equal a frame of their input"),
        ("nan", "targets hold NaN"),
    ],
)
def test_bad_targets_are_refused_and_an_audit_is_labelled(how, message):
    with pytest.raises(InputError, match=f"task 'data': train: .*{message}"):
        Task.from_trajectories(spoilt(how))
    audit = Task.from_trajectories(spoilt(how), audit=True)
    assert audit.label.startswith("data [AUDIT: train: ")


def test_noise_does_not_hide_bad_targets():
    with pytest.raises(InputError, match="all target positions are zero"):
        Task.from_trajectories(spoilt("zero"), noise=0.5)


def test_velocities_by_differences_do_not_give_the_target_away():
    """White noise cannot be forecast: whoever is right has seen the target."""
    x = np.random.default_rng(0).standard_normal((200, 3, 4, 2))
    task = Task.from_trajectories(Trajectories.from_arrays(x), length=2, stride=1, target_steps=1)
    graph, target = task.train[:]
    line = errors(build_model("straight-line")(graph), target)[0]
    assert summary(line)["mean"] > 1
    np.testing.assert_allclose(graph.v[:, 0], graph.x[:, 1] - graph.x[:, 0], rtol=1e-5)
    with pytest.raises(InputError, match="one frame has no differences"):
        Task.from_trajectories(Trajectories.from_arrays(x), length=1, stride=1, target_steps=1)


def test_in_a_box_targets_continue_the_path():
    """Uniform motion through a periodic box: the straight line is exact."""
    rng = np.random.default_rng(0)
    x0, v = rng.random((20, 1, 3, 2)), 0.4 * rng.standard_normal((20, 1, 3, 2))
    times = 0.3 * np.arange(12)
    x = (x0 + times[:, None, None] * v) % 1.0
    t = Trajectories.from_arrays(x, np.broadcast_to(v, x.shape), times=times, box=[1.0, 1.0])
    graph, target = Task.from_trajectories(t, length=3, stride=1, target_steps=4).train[:]
    line = errors(build_model("straight-line")(graph), target)[0]
    assert line.max() < 1e-8
    assert (target.x.abs() > 1).any()


def test_too_few_runs_and_frames_say_so():
    with pytest.raises(InputError, match=r"5 runs of 11 frames can be split neither by run"):
        Task.from_trajectories(simulate("charged", 5))
    x = np.random.default_rng(0).standard_normal((3, 20, 2, 3)).cumsum(1)
    task = Task.from_trajectories(Trajectories.from_arrays(x, x))  # just enough
    assert [len(windows) for windows in task.splits.values()] == [45, 3, 3]


def test_a_trajectory_in_two_splits_is_refused():
    t = simulate("charged", 30)
    spans = ((0, 20), (19, 25), (25, 30))
    windows = [Windows(t, 10, 1, 1_000, runs=np.arange(*span)) for span in spans]
    with pytest.raises(InputError, match="train and val share a trajectory"):
        Task("mixed", *windows)


def test_good_targets_carry_no_label():
    task = Task.from_trajectories(simulate("charged", 30))
    assert task.label == "data"
    assert [len(w) for w in task.splits.values()] == [24, 3, 3]


def test_one_long_run_is_split_by_time_and_no_window_crosses_a_border():
    x = np.random.default_rng(0).standard_normal((1, 300, 2, 2)).cumsum(1)
    task = Task.from_trajectories(Trajectories.from_arrays(x), length=4, stride=1, target_steps=2)
    last = -1
    for windows in task.splits.values():
        assert windows.cut.frames().min() > last
        last = windows.cut.frames().max()
    assert last == 299


def test_windows_are_suggested_by_the_frames():
    def suggested(steps, interval, **options):
        x = np.zeros((1, len(steps), 1, 1))
        return suggest_windows(Trajectories.from_arrays(x, x, steps=steps), interval, **options)

    assert suggested([*range(0, 100, 10), 10_090], 10) == (10, 1, 1_000)
    assert suggested([*range(0, 100, 10), 95], 10) == (4, 1, 1)  # half an interval is none
    assert suggested([*range(0, 100, 10), 95], 5) == (10, 2, 1)
    assert suggested(np.arange(0, 500, 5), 5) == (10, 1, 1)
    assert suggested(np.arange(98), 1, share=0.1) == (3, 1, 1)


def test_another_name_or_box_is_another_fingerprint():
    x = np.random.default_rng(0).standard_normal((12, 6, 3, 2)).cumsum(1)
    ones = np.ones(3)
    sets = [
        Trajectories.from_arrays(x, attributes={"charge": ones}),
        Trajectories.from_arrays(x, attributes={"mass": ones}),
        Trajectories.from_arrays(x, attributes={"mass": ones}, box=[99.0, 99.0]),
        Trajectories.from_arrays(x, x, attributes={"mass": ones}),
    ]
    assert len({t.fingerprint for t in sets}) == 4
    again = Trajectories.from_arrays(x.copy(), attributes={"charge": ones})
    assert again.fingerprint == sets[0].fingerprint


def test_all_windows_are_seen_from_the_origin_of_those_to_learn_from():
    x = np.random.default_rng(0).standard_normal((12, 6, 3, 2)).cumsum(1)
    parts = [
        Trajectories.from_arrays(x[k : k + 4] + b, x[k : k + 4])
        for k, b in ((0, 1e6), (4, 2e6), (8, 0.0))
    ]
    task = Task("places", *(Windows(t, 2, 1, 1) for t in parts))
    assert (abs(task.train.origin - 1e6) < 5).all()
    for windows, place in ((task.val, 1e6), (task.test, -1e6)):
        assert np.array_equal(windows.origin, task.train.origin)
        assert windows[:][0].x.mean().item() == pytest.approx(place, abs=5)


def test_zero_targets_are_refused_far_from_the_origin_too():
    x = 5e6 + np.random.default_rng(0).standard_normal((12, 6, 3, 2)).cumsum(1)
    x[:, -1] = 0.0
    with pytest.raises(InputError, match="all target positions are zero"):
        Task.from_trajectories(Trajectories.from_arrays(x, x), length=5, stride=1, target_steps=1)


@pytest.mark.parametrize("limit", [1 << 30, 1 << 15, 0])  # all, some and none kept in memory
def test_copies_of_training_runs_are_refused(monkeypatch, limit):
    monkeypatch.setattr("spacetime_en.data.windows._IN_MEMORY", limit)
    x = np.random.default_rng(0).standard_normal((20, 8, 3, 2)).cumsum(1)
    cut = dict(length=2, stride=1, target_steps=1)
    Task.from_trajectories(Trajectories.from_arrays(x, x), **cut)
    for copy, split in ((19, "test"), (16, "val")):
        y = x.copy()
        y[copy] = x[3]
        with pytest.raises(InputError, match=f"run {copy}, of {split}, is a copy of one of train"):
            Task.from_trajectories(Trajectories.from_arrays(y, y), **cut)
        y[copy] = np.nextafter(x[3], np.inf)  # the last bit makes it another one
        Task.from_trajectories(Trajectories.from_arrays(y, y), **cut)
    splits = [Trajectories.from_arrays(part, part) for part in (x[:5], x[5:10], x[4:6])]
    with pytest.raises(InputError, match=r"run 0, of test, is a copy of one of train"):
        Task("apart", *(Windows(t, **cut) for t in splits))


def test_a_recording_that_repeats_itself_is_refused_and_one_that_rests_is_not():
    x = np.random.default_rng(0).standard_normal((1, 300, 3, 2)).cumsum(1)
    cut = dict(length=2, stride=1, target_steps=1)
    loop = np.concatenate([x, x[:, 30:60]], axis=1)
    with pytest.raises(InputError, match=r"copy of one of train|of the test windows are copies"):
        Task.from_trajectories(Trajectories.from_arrays(loop, loop), **cut)
    x[:, [10, 11, 12, 290, 291, 292]] = 0.5
    Task.from_trajectories(Trajectories.from_arrays(x, x), **cut)
