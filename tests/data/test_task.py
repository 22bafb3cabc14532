import numpy as np
import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model
from spacetime_en.data import Task, Trajectories, Windows, simulate
from spacetime_en.data.compatibility import facts_of
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
    with pytest.raises(InputError, match=r"2 runs of 11 frames can be split neither by run"):
        Task.from_trajectories(simulate("charged", 2))
    x = np.random.default_rng(0).standard_normal((3, 20, 2, 3)).cumsum(1)
    task = Task.from_trajectories(Trajectories.from_arrays(x, x))  # just enough
    assert [len(windows) for windows in task.splits.values()] == [45, 3, 3]


def test_short_recordings_of_long_windows_are_split_all_the_same():
    """Where a tenth of the time is shorter than a window: by run, or in larger parts of time."""
    x = np.random.default_rng(0).standard_normal((5, 40, 2, 2)).cumsum(1)
    several = Trajectories.from_arrays(x)
    task = Task.from_trajectories(several, length=8, stride=1, target_steps="1..12")
    assert [w.runs.tolist() for w in task.splits.values()] == [[0, 1, 2], [3], [4]]
    assert [len(w) for w in task.splits.values()] == [63, 21, 21]
    alone = Trajectories.from_arrays(x.reshape(1, 200, 2, 2)[:, :164])
    task = Task.from_trajectories(alone, length=8, stride=1, target_steps="1..12")
    assert [len(w) for w in task.splits.values()] == [69, 19, 19]  # two windows' time each
    shortest = Trajectories.from_arrays(x.reshape(1, 200, 2, 2)[:, :60])
    task = Task.from_trajectories(shortest, length=8, stride=1, target_steps="1..12")
    assert [len(w) for w in task.splits.values()] == [1, 1, 1]  # a third each


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


# --- splits of your own ---------------------------------------------------------------------------


def walks(runs=5, frames=12, **fields):
    x = np.random.default_rng(0).standard_normal((runs, frames, 3, 2)).cumsum(1)
    return Trajectories.from_arrays(x, **fields)


CUT = dict(length=2, stride=1, target_steps=1)
LABELS = ["val", "train", "test", "train", "train"]


def test_runs_are_split_by_their_labels():
    for task in (
        Task.from_trajectories(walks(meta={"splits": LABELS}), **CUT),
        Task.from_trajectories(walks(), splits=LABELS, **CUT),
        Task.from_trajectories(walks(meta={"splits": LABELS[::-1]}), splits=LABELS, **CUT),
    ):
        assert [w.runs.tolist() for w in task.splits.values()] == [[1, 3, 4], [0], [2]]
    counted = Task.from_trajectories(walks(meta={"splits": LABELS}), counts=(3, 1, 1), **CUT)
    assert counted.train.runs.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["train"], "a label for each of the 5 runs, found 1"),
        (["train"] * 4 + ["test"], "no run is labelled 'val'"),
        (["train", "val", "test", "dev", "train"], "expected train, val, test, found 'dev'"),
    ],
)
def test_labels_that_make_no_splits(labels, sentence):
    with pytest.raises(InputError, match=f"splits: .*{sentence}"):
        Task.from_trajectories(walks(meta={"splits": labels}), **CUT)


# --- nodes that come and go -----------------------------------------------------------------------


def crowd(seed=0, runs=3, frames=60, slots=4):
    """Recordings in which a slot changes hands every few frames, with gaps."""
    rng = np.random.default_rng(seed)
    ids = (np.arange(frames)[:, None] // 9 * slots + np.arange(slots))[None].repeat(runs, 0)
    x = rng.standard_normal((runs, frames, slots, 2)).cumsum(1)
    return Trajectories.from_arrays(x, ids=ids, observed=rng.random(ids.shape) < 0.9)


def test_targets_of_those_who_left_do_not_count_as_zero_or_missing():
    task = Task.from_trajectories(crowd(), length=3, stride=1, target_steps="1..3")
    assert task.problems == ()
    assert not task.train[:][1].mask.all()


def test_a_person_at_rest_gives_nothing_away():
    t = crowd(slots=1)
    x = t.x.copy()
    x[:, :30] = 7.0
    resting = Trajectories.from_arrays(x, observed=t.observed, ids=t.ids)
    assert not Task.from_trajectories(resting, length=2, stride=1, target_steps=1).problems
    for frame in range(32, 60):
        x[:, frame] = x[:, frame - 2]  # to and fro: the target has been seen
    pacing = Trajectories.from_arrays(x, observed=t.observed, ids=t.ids)
    with pytest.raises(InputError, match="targets equal a frame of their input"):
        Task.from_trajectories(pacing, length=2, stride=1, target_steps=1)


def test_people_in_other_slots_are_still_copies():
    t = crowd()
    x, observed, ids = (np.concatenate([a, a[:1, :, ::-1]]) for a in (t.x, t.observed, t.ids))
    copied = Trajectories.from_arrays(x, observed=observed, ids=ids)
    labels = ["train", "train", "val", "test"]
    with pytest.raises(InputError, match="run 3, of test, is a copy of one of train"):
        Task.from_trajectories(copied, splits=labels, length=3, stride=1, target_steps=2)


def test_which_nodes_and_targets_is_part_of_the_fingerprint():
    cuts = [
        dict(length=3, target_steps="1..3"),
        dict(length=4, target_steps="1..2"),  # the same frames
        dict(length=3, target_steps="1..3", nodes="all"),
        dict(length=3, target_steps="1..3", min_nodes=4),
    ]
    tasks = [Task.from_trajectories(crowd(), stride=1, **cut) for cut in cuts]
    assert len({task.fingerprint for task in tasks}) == len(cuts)


# --- windows of your own --------------------------------------------------------------------------


class Own:
    """Straight lines of two or three nodes, cut by the user."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(1000 * self.seed + index)
        x, v = torch.randn(2, 1, 2 + index % 2, 2, generator=generator)
        graph = SpacetimeGraph(x[:, None], v[:, None], horizon=torch.tensor([[1.0, 2.0]]))
        path = torch.stack([x + v, x + 2 * v], dim=1)
        return graph, Forecast(path, torch.stack([v, v], dim=1))


def test_windows_of_your_own_make_a_task():
    task = Task("own", Own(20, 0), Own(5, 1), Own(5, 2))
    graph, target = task.train[[0, 1, 2]]
    assert graph.x.shape == (3, 1, 3, 2)
    assert graph.observed.sum(2).flatten().tolist() == [2, 3, 2]
    assert target.mask[:, 0].sum(1).tolist() == [2, 3, 2]
    assert task.train.node_counts[:3].tolist() == [2, 3, 2]
    again = Task("own", Own(20, 0), Own(5, 1), Own(5, 2))
    assert again.fingerprint == task.fingerprint
    assert Task("own", Own(20, 3), Own(5, 1), Own(5, 2)).fingerprint != task.fingerprint
    facts = facts_of(task)
    assert (facts.frames, facts.nodes, facts.dims, facts.horizon_times) == (1, 3, 2, (1.0, 2.0))
    straight = errors(build_model("straight-line")(graph), target)[0]
    assert straight.max() < 1e-10


def test_copies_among_windows_of_your_own_are_refused():
    with pytest.raises(InputError, match="is a copy of one of train"):
        Task("own", Own(20, 0), Own(5, 1), Own(5, 0))


@pytest.mark.parametrize(
    ("windows", "sentence"),
    [
        (3, "train: expected Windows, or something with a length"),
        ([], "train: expected Windows, or something with a length"),
        ([1, 2], "train: expected a pair .* as window 0, found 1"),
        ([Own(1, 0)[0][0]], "train: expected a pair .* as window 0"),
    ],
)
def test_what_cannot_be_windows_is_told_in_one_sentence(windows, sentence):
    with pytest.raises(InputError, match=sentence):
        Task("own", windows, Own(5, 1), Own(5, 2))


def test_recordings_of_different_lengths_are_split_by_their_own_time():
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal((frames, 3, 2)).cumsum(0) for frames in (400, 100, 60, 4)]
    task = Task.from_trajectories(Trajectories.from_runs(runs), length=3, target_steps=2)
    spans = {split: windows.spans().tolist() for split, windows in task.splits.items()}
    assert spans["train"] == [[0, 319], [0, 79], [0, 47], [400, -1]]  # too short for a window
    assert spans["val"] == [[320, 359], [80, 89], [48, 53], [400, -1]]
    assert spans["test"] == [[360, 399], [90, 99], [54, 59], [400, -1]]


def test_windows_of_one_recording_that_touch_leak():
    t = Trajectories.from_arrays(np.random.default_rng(0).standard_normal((1, 60, 3, 2)).cumsum(1))

    def windows(*span):
        return Windows(t, 3, 1, 2, steps=np.array([span]))

    Task("apart", windows(0, 30), windows(31, 45), windows(46, 59))
    with pytest.raises(InputError, match="val and test share a trajectory"):
        Task("touching", windows(0, 30), windows(31, 46), windows(46, 59))


def test_an_up_of_the_task_takes_the_place_of_that_of_the_data(tmp_path):
    simulate("charged", 20, nodes=3, steps=60, save=range(0, 61, 10)).save(tmp_path / "data")
    data = Trajectories.open(tmp_path / "data")
    plain = Task.from_trajectories(data)
    task = Task.from_trajectories(data, up=(0, 0, 2))
    graph, _ = task.train[:2]
    assert plain.train[:2][0].up is None
    assert graph.up.tolist() == [[0, 0, 1]] * 2
    assert task.fingerprint != plain.fingerprint
    assert build_model("set-2", like=graph).config["up"]
    with pytest.raises(InputError, match="up: expected a direction of 3 numbers"):
        Task.from_trajectories(data, up=(0, 1))
