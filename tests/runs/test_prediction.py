import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, SpacetimeGraph, build_model
from spacetime_en.data import Task, Trajectories, Windows, simulate
from spacetime_en.data.compatibility import facts_of
from spacetime_en.data.readers import read
from spacetime_en.runs.prediction import count_windows, fast_batch, predict, target_times
from tests.helpers import SMALL, liven


def walks(num=3, frames=12, nodes=4, dims=3, spacing=0.5, velocities=True, **fields):
    """Random walks in time."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num, frames, nodes, dims)).cumsum(1)
    v = rng.standard_normal(x.shape) if velocities else None
    times = 5 + spacing * np.arange(frames)
    return Trajectories.from_arrays(x, v, **({"times": times} | fields))


def small_set(windows):
    """A model for these windows that reads everything in them; with dropout, in training mode."""
    torch.manual_seed(0)
    return liven(build_model("set", like=windows[0][0], **SMALL)).double()


class Spy(Forecaster):
    """Nothing moves; it remembers what it saw. It has one parameter, to have a dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))
        self.dropout = torch.nn.Dropout()
        self.seen, self.modes = [], []

    def forecast(self, graph):
        self.seen.append(graph)
        self.modes.append((self.dropout.training, torch.is_grad_enabled()))
        return Forecast(graph.x[:, -1:], graph.v[:, -1:])


class Counting:
    """An array that remembers how much of it was read at once."""

    def __init__(self, array):
        self.array, self.shape, self.most = array, array.shape, 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        out = self.array[index]
        self.most = max(self.most, out.size)
        return out


@pytest.mark.parametrize("batch_size", [5, 20, 100])  # part of a run, two runs, all runs
def test_forecasts_are_the_models_of_the_same_windows(tmp_path, batch_size):
    rng = np.random.default_rng(1)
    known = {"charge": rng.choice([-1.0, 1.0], (3, 4)), "mass": rng.random((3, 4))}
    t = walks(attributes=known)
    windows = Windows(t, length=3, stride=2, target_steps=4, dtype=torch.float64)
    assert windows[0][0].feature_width == 2  # the mass joins the speed
    model = small_set(windows)
    options = dict(length=3, frame_time=1.0, horizon_times=(2.0,), batch_size=batch_size)
    where = predict(model, t, tmp_path / "out", **options)
    assert where == tmp_path / "out"
    out = read(where)
    assert out.x.shape == (3, 8, 4, 3)  # windows without a target, too
    with torch.no_grad():
        direct = model.eval()(windows[:][0])
    for name in ("x", "v"):  # the windows that have a target are the first four of each run
        expected = getattr(direct, name).reshape(3, 4, 4, 3)
        np.testing.assert_allclose(getattr(out, name)[:, :4], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out.times, 5 + 0.5 * np.arange(4, 12) + 2.0)
    assert out.steps.tolist() == list(range(8, 16))  # the data's count goes on
    assert np.array_equal(out.attributes["mass"], t.attributes["mass"])
    assert np.array_equal(out.charge, t.charge)


@pytest.mark.parametrize("velocities", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_graphs_are_those_of_windows_to_the_bit(tmp_path, velocities, dtype):
    """In a box, of pairs, with velocities measured and not."""
    spring = np.random.default_rng(1).random((3, 4, 4))
    t = walks(velocities=velocities, box=[2.0, 3.0, 4.0], attributes={"spring": spring})
    model = Spy().to(dtype)
    options = dict(length=3, frame_time=1.0, horizon_times=(0.5,), batch_size=100)
    predict(model, t, tmp_path / "out", **options)
    windows = Windows(t, length=3, stride=2, target_steps=1, dtype=dtype)
    (seen,) = model.seen
    rows = torch.arange(24).reshape(3, 8)[:, :7].flatten()  # those with a target
    for name, value in windows[:][0].fields().items():
        assert torch.equal(getattr(seen, name)[rows], value), name
        assert getattr(seen, name).dtype == value.dtype
    steps = seen.x.diff(dim=1)  # a second apart
    assert (steps.abs() <= 2 * torch.tensor([1.0, 1.5, 2.0]) + 1e-6).all()  # the short way round
    assert torch.equal(seen.v[:, 1:], steps) != velocities
    out = read(tmp_path / "out")
    assert np.array_equal(out.box, t.box)
    assert out.measured_velocities  # they are the model's


@pytest.mark.parametrize("batch_size", [3, 100])
def test_runs_of_different_lengths(tmp_path, batch_size):
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal((T, 4, 3)).cumsum(0) for T in (9, 5, 7)]
    t, model = Trajectories.from_runs(runs, time_step=0.5), build_model("straight-line")
    options = dict(length=3, frame_time=1.0, horizon_times=(2.0,), batch_size=batch_size)
    done = []
    predict(model, t, tmp_path / "out", **options, progress=done.append)
    out = read(tmp_path / "out")
    assert out.lengths.tolist() == [5, 1, 3]
    assert sum(done) == count_windows(t, length=3, frame_time=1.0) == 9
    for k, run in enumerate(runs):
        alone = Trajectories.from_arrays(run[None], times=0.5 * np.arange(len(run)))
        own = read(predict(model, alone, tmp_path / f"{k}", **options))
        np.testing.assert_array_equal(out.x[k, : out.lengths[k]], own.x[0])
        np.testing.assert_array_equal(out.v[k, : out.lengths[k]], own.v[0])
    assert np.isfinite(out.x).all()
    with pytest.raises(InputError, match=r"out.npz: the runs have different lengths; use a folder"):
        predict(model, t, tmp_path / "out.npz", **options)
    with pytest.raises(InputError, match="last: the newest windows of the runs end at different"):
        predict(model, t, tmp_path / "last", **options, last=True)
    with pytest.raises(InputError, match="run 1 has 5 frames, too few for a window, which takes 7"):
        predict(model, t, tmp_path / "long", **options | {"length": 4})


def test_tables_hold_the_newest_windows_of_runs_of_different_lengths(tmp_path):
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal((T, 2, 2)).cumsum(0) for T in (9, 2, 7)]
    t, model = Trajectories.from_runs(runs, time_step=0.5), build_model("last-frame")
    options = dict(length=3, frame_time=0.5, horizon_times=(0.5,), last=True)
    said = []
    table = predict(model, t, tmp_path / "last.csv", **options, notify=said.append)
    assert said == ["warning: 1 of 3 runs are shorter than a window, of 3 frames."]
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert rows[0][:4] == ["recording", "last_frame", "frame", "id"]
    assert [row[:4] for row in rows[1:]] == [
        [run, last, str(int(last) + 1), node]
        for run, last in (("0", "8"), ("2", "6"))
        for node in "01"
    ]
    found = np.array([row[4:6] for row in rows[1:]], dtype=float).reshape(2, 2, 2)
    np.testing.assert_allclose(found, [runs[0][-1], runs[2][-1]], rtol=1e-6)
    paths = read(predict(model, t, tmp_path / "paths", **options | {"horizon_times": (0.5, 1.0)}))
    assert paths.meta["recordings"] == ["0 after step 8", "2 after step 6"]


def test_models_are_not_asked_for_times_that_they_do_not_know(tmp_path):
    """A network of one horizon, or weights for each time, would answer with their own times."""
    t, last = walks(frames=60), dict(length=3, frame_time=0.5, last=True)
    for target_steps, preset in (("4", "egnn"), ("1..2", "ridge-shared")):
        task = Task.from_trajectories(t, length=3, stride=1, target_steps=target_steps)
        model = build_model(preset, like=task.train[:1][0])
        model.trained_on = facts_of(task)
        for times in ((0.5,), (1.0, 1.5)):
            with pytest.raises(InputError, match="horizon: this model was trained to forecast"):
                predict(model, t, tmp_path / "out.csv", horizon_times=times, **last)
    steps = target_times(model.trained_on, steps=3), target_times(model.trained_on)
    assert steps == ((0.5, 1.0, 1.5), (0.5, 1.0))
    for options, message in (
        ({"steps": 0}, "steps: expected"),
        ({"times": (2.0, 1.0)}, "times: expected increasing times, found 2, 1"),
        ({"steps": 2, "times": (1.0,)}, "steps, times: target times are chosen by one"),
    ):
        with pytest.raises(InputError, match=message):
            target_times(model.trained_on, **options)


def test_the_newest_window_alone(tmp_path):
    t, model = walks(num=7), build_model("straight-line")
    options = dict(length=2, frame_time=0.5, horizon_times=(3.0,), batch_size=3)
    every, last = (
        read(predict(model, t, tmp_path / f"{last}.npz", last=last, **options))
        for last in (False, True)
    )
    assert last.x.shape == (7, 1, 4, 3)
    assert np.array_equal(last.x, every.x[:, -1:])
    assert last.times.tolist() == [t.times[-1] + 3]
    np.testing.assert_allclose(last.x[:, 0], t.x[:, -1] + 3 * t.v[:, -1])


def test_one_frame_needs_velocities_and_no_spacing(tmp_path):
    t = walks(times=np.sort(np.random.default_rng(0).random(12)))  # nor even times
    options = dict(length=1, frame_time=None, horizon_times=(1.0,))
    out = read(predict(build_model("straight-line"), t, tmp_path / "out", **options))
    np.testing.assert_allclose(out.x, t.x + t.v)
    assert np.array_equal(out.times, t.times + 1)
    assert out.steps.tolist() == list(range(12))
    assert count_windows(t, length=1, frame_time=-1.0) == 3 * 12  # what is not read may be anything
    with pytest.raises(InputError, match="v: the model reads one frame"):
        predict(build_model("straight-line"), walks(velocities=False), tmp_path / "b", **options)
    with pytest.raises(InputError, match="frame_time: expected the time between the 2 frames"):
        predict(build_model("straight-line"), t, tmp_path / "b", **options | {"length": 2})


def test_windows_are_found_by_time(tmp_path):
    # A pair 1 apart and 0.4 % off, frames in between, a gap, and times written in single precision.
    times = np.array([0, 0.3, 1.004, 2, 2.5, 3, 4.0004, 9, 10, 11], dtype=np.float32)
    options = dict(length=3, frame_time=1.0, horizon_times=(0.25,))
    model, t = Spy(), walks(frames=10, times=times)
    out = read(predict(model, t, tmp_path / "out", **options))
    np.testing.assert_allclose(out.times, [4.2504, 11.25])
    (seen,) = model.seen
    np.testing.assert_allclose(seen.times[0], [0, 1, 2.0004], rtol=1e-6)
    assert torch.equal(seen.x[0].double(), torch.tensor(t.x[0, [3, 5, 6]]).float().double())
    assert count_windows(t, length=3, frame_time=1.0) == 6
    assert count_windows(t, length=3, frame_time=1.0, last=True) == 3


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {"frame_time": 0.3}, "reads 3 frames, 0.3 apart, and the data's frames are 0.5 apart"),
        ({"times": np.arange(12.0) ** 2}, {"frame_time": 2.0}, "are 1 to 21 apart; give the right"),
        ({"frames": 2}, {}, "reads 3 frames, 0.5 apart, and the data have 2; give longer runs"),
        ({"times": [0, 0.5, *range(2, 12)]}, {}, "never have so many such frames in a row; give"),
        (
            {},
            {"horizon_times": (0.0,)},
            "horizon_times: [0]: expected a positive number",
        ),
        (
            {},
            {"horizon_times": (2.0, 1.0)},
            "horizon_times: expected one or more times",
        ),
        ({}, {"batch_size": 0}, "batch_size: expected a positive whole number or None, found 0"),
        ({}, {"length": 0}, "length: expected a positive whole number, found 0"),
        ({}, {"out": "a.h5"}, "a .h5 file holds one run, found 3"),
        ({"dims": 2}, {}, "n = 3 space dimensions, the graph has 2"),  # the model's own words
    ],
)
def test_what_cannot_be_forecast_is_told_in_one_sentence(tmp_path, fields, options, message):
    if options.get("out") == "a.h5":
        pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    settings = {"out": "out", "length": 3, "frame_time": 0.5, "horizon_times": (1.0,)} | options
    settings["out"] = tmp_path / settings["out"]
    with pytest.raises(InputError, match=re.escape(message)):
        predict(build_model("mlp", nodes=4), walks(**fields), **settings)
    assert list(tmp_path.iterdir()) == []


def test_forecasts_that_are_not_numbers_are_no_file(tmp_path):
    model = build_model("linear")
    with torch.no_grad():
        model.alpha.fill_(torch.inf)
    with pytest.raises(InputError, match=r"positions that are NaN .* run 0, .* ends at time 5.5"):
        predict(model, walks(), tmp_path / "out", length=2, frame_time=0.5, horizon_times=(1.0,))
    assert list(tmp_path.iterdir()) == []


def test_the_file_says_where_it_comes_from(tmp_path):
    t = walks(velocities=False, meta={"length_unit": "m"})
    model = build_model("last-frame")
    predict(model, t, tmp_path / "out", length=2, frame_time=0.5, horizon_times=(np.float32(1),))
    about = {"model": "LastFrame", "length": 2, "frame_time": 0.5, "horizon_times": [1.0]}
    assert read(tmp_path / "out").meta == {"length_unit": "m", "forecast": about}
    with pytest.raises(InputError, match=r"exists already; choose another name or delete it\."):
        predict(model, t, tmp_path / "out", length=2, frame_time=0.5, horizon_times=(1.0,))


def test_the_model_comes_back_as_it_was(tmp_path):
    model = Spy().train()
    model.dropout.eval()
    model.half()  # too coarse for differences of frames, which are taken before the cast
    t = walks(velocities=False)
    predict(model, t, tmp_path / "out", length=2, frame_time=0.5, horizon_times=(1.0,))
    assert model.modes == [(False, False)]
    assert model.training
    assert not model.dropout.training
    assert torch.is_grad_enabled()
    assert model.seen[0].x.dtype == torch.float16
    expected = Windows(t, 2, 1, 1)[0][0].v.half()
    assert torch.equal(model.seen[0].v[:1], expected)

    class Interrupted(Spy):
        def forecast(self, graph):
            if self.seen:
                raise KeyboardInterrupt
            return super().forecast(graph)

    model = Interrupted().train()
    options = dict(length=2, frame_time=0.5, horizon_times=(1.0,), batch_size=1)
    with pytest.raises(KeyboardInterrupt):
        predict(model, t, tmp_path / "new", **options)
    assert model.training
    assert model.dropout.training
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("num", "frames"), [(1, 2_000), (500, 3), (30, 40)])
def test_a_batch_is_all_that_is_read_at_once(tmp_path, num, frames, last):
    t = walks(num=num, frames=frames)
    t = Trajectories(Counting(t.x), Counting(t.v), t.steps, t.times)
    model, done = Spy(), []
    options = dict(length=2, frame_time=0.5, horizon_times=(1.0,), batch_size=32, last=last)
    out = read(predict(model, t, tmp_path / "out", progress=done.append, **options))
    assert max(len(graph) for graph in model.seen) <= 32
    assert t.x.most <= 32 * 2 * 4 * 3
    assert t.v.most <= 32 * 2 * 4 * 3
    windows = 1 if last else frames - 1
    assert sum(done) == num * windows == count_windows(t, length=2, frame_time=0.5, last=last)
    assert len(done) <= 2 * np.ceil(num * windows / 32)  # and batches are used
    assert np.array_equal(out.x, t.x.array[:, -windows:].astype(np.float32))


@pytest.mark.parametrize(
    ("length", "nodes", "near", "least", "most"),
    [
        (1, 5, {}, 1_000, 10_000),
        (4, 5, {}, 1_000, 10_000),
        (10, 5, {}, 500, 1_000),
        (10, 31, {}, 50, 200),
        (1, 1_000, {}, 1, 1),  # a million edges
        (1, 1_000, {"k": 8}, 16, 64),
        (1, 1_000, {"radius": 2.0}, 8, 64),
        (1_000, 100_000, {"k": 8}, 1, 1),
    ],
)
def test_small_windows_go_by_the_thousand_and_large_ones_alone(length, nodes, near, least, most):
    assert least <= fast_batch(length, nodes, **near) <= most


def test_the_batch_follows_the_size_of_a_window(tmp_path):
    model = Spy()
    predict(
        model,
        walks(num=1, frames=8_000),
        tmp_path / "out",
        length=2,
        frame_time=0.5,
        horizon_times=(1.0,),
    )
    assert [len(graph) for graph in model.seen] == [4_096, 3_903]  # 2^15 nodes in 2 frames of 4


def test_many_runs_need_the_memory_of_one_batch(tmp_path):
    t = Trajectories.open(walks(num=1_000, frames=200, nodes=5).save(tmp_path / "set"))  # 48 MB
    tracemalloc.start()
    options = dict(length=2, frame_time=0.5, horizon_times=(1.0,), batch_size=500)
    predict(build_model("last-frame"), t, tmp_path / "out", **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6  # of which 8 MB are the checksum's
    assert len(read(tmp_path / "out")) == 1_000


def test_forecasts_fit_the_truth_by_their_steps(tmp_path):
    """A forecast of the past can be laid beside what came of it."""
    start, speed = walks(frames=2).x[:, :1], walks(frames=2).v[:, :1]
    times = 0.1 * np.arange(21)[:, None, None]
    x = start + speed * times  # so that the straight line is right
    t = Trajectories.from_arrays(x, times=times.ravel(), steps=7 + 10 * np.arange(21))
    options = dict(length=3, frame_time=0.2, horizon_times=(0.5,))
    out = read(predict(build_model("straight-line"), t, tmp_path / "a.npz", **options))
    assert out.steps.tolist() == list(range(7 + 40 + 50, 7 + 200 + 51, 10))
    known = np.isin(out.steps, t.steps)
    np.testing.assert_allclose(out.x[:, known], x[:, np.isin(t.steps, out.steps)], atol=1e-12)
    np.testing.assert_allclose(out.v, np.broadcast_to(speed, out.v.shape), atol=1e-12)


def test_h5md_and_back(tmp_path):
    pytest.importorskip("h5py", reason="the extra `h5md` is not installed")
    t = walks(num=1, attributes={"mass": np.arange(1.0, 5)})
    options = dict(length=2, frame_time=0.5, horizon_times=(1.0,))
    a, b = (
        read(predict(build_model("straight-line"), t, tmp_path / name, **options))
        for name in ("set", "a.h5")
    )
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.v, b.v)
    assert np.array_equal(a.times, b.times)
    assert np.array_equal(a.attributes["mass"], b.attributes["mass"])


def test_windows_index_as_numpy_does_without_listing_all(monkeypatch):
    t = walks(num=2, frames=7)
    mask = np.arange(10) % 3 == 0
    for limit in (1 << 30, 0):  # kept in memory, and read each time
        monkeypatch.setattr("spacetime_en.data.windows._IN_MEMORY", limit)
        windows = Windows(t, length=2, stride=1, target_steps=1)
        every = windows[:][1].x
        for index in (
            3, -1, np.int64(4), torch.tensor(2), [7, -10, 0], torch.tensor([1, -2]), np.uint8([9]),
            slice(2, 5), slice(None, -3), slice(8, None, -3), slice(1, 99, 2),
            mask, mask.tolist(), torch.tensor(mask),
        ):  # fmt: skip
            plain = index.numpy() if isinstance(index, torch.Tensor) else index
            rows = np.array(np.arange(10)[plain], ndmin=1)
            assert torch.equal(windows[index][1].x, every[rows]), index
        for index in (10, -11, [0, 10], torch.tensor(-11), mask[:-1], [], [0.5], None, "all"):
            with pytest.raises(IndexError):
                windows[index]
    assert (
        len(list(Windows(t, length=2, stride=1, target_steps=1))) == 10
    )  # stops at the IndexError
    many = Windows(t, length=2, stride=1, target_steps=1, runs=np.broadcast_to(np.array(1), 10**7))
    tracemalloc.start()
    graph, _ = many[[len(many) - 1, 3]]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(graph.x, windows[[9, 8]][0].x)
    assert peak < 1e6


AWAY = np.array([5e6, 4.5e5, 0.0])  # metres from the equator
OPTIONS = dict(length=3, frame_time=0.5, horizon_times=(1.0,))


def moved(t, b):
    return Trajectories.from_arrays(t.x + b, t.v, times=t.times)


@pytest.mark.parametrize("ending", ["", ".npz"])
def test_far_from_the_origin_forecasts_are_the_same(tmp_path, ending):
    """To a fraction of a millimetre, by a model in single precision."""
    near = walks(frames=6)
    model = liven(build_model("egnn", like=Windows(near, 3, 1, 1)[0][0], hidden=16))
    here, there = (
        read(predict(model, t, tmp_path / f"{name}{ending}", **OPTIONS))
        for name, t in (("near", near), ("far", moved(near, AWAY)))
    )
    assert there.x.dtype == np.float64
    assert abs(here.x - near.x[:, 2:]).max() > 0.05  # they do move
    np.testing.assert_allclose(there.x - AWAY, here.x, rtol=0, atol=2e-5)
    np.testing.assert_allclose(there.v, here.v, rtol=0, atol=2e-5)


def test_a_model_that_sees_places_sees_them_from_where_it_was_trained(tmp_path):
    """Walls do not move with the recording: another place is another forecast."""
    data = moved(walks(num=12, frames=6), AWAY)
    task = Task.from_trajectories(data, length=3, stride=1, target_steps=2)
    model = liven(build_model("mlp", like=task.train[0][0], hidden=16))
    model.trained_on = facts_of(task)
    one = read(predict(model, data, tmp_path / "all", **OPTIONS))
    with torch.no_grad():
        seen = model.eval()(task.test[:][0]).x.reshape(2, 2, 4, 3).numpy() + task.train.origin
    np.testing.assert_allclose(one.x[-2:, :2], seen, rtol=0, atol=1e-5)
    beside = moved(data, 50.0)
    assert (beside.origin != data.origin).all()
    two = read(predict(model, beside, tmp_path / "beside", **OPTIONS))
    assert abs(two.x - 50 - one.x).max() > 0.1
    graph = task.test[:][0].translate(torch.full((3,), 50.0))
    with torch.no_grad():
        seen = model(graph).x.reshape(2, 2, 4, 3).numpy() + task.train.origin
    np.testing.assert_allclose(two.x[-2:, :2], seen, rtol=0, atol=1e-3)


def test_attributes_are_found_by_name_and_other_kinds_of_data_refused(tmp_path):
    rng = np.random.default_rng(1)
    known = {"mass": rng.random((12, 4)), "radius": rng.random((12, 4))}
    data = walks(num=12, frames=6, attributes=known, meta={"length_unit": "m"})
    task = Task.from_trajectories(data, length=3, stride=1, target_steps=2)
    model, said = liven(build_model("egnn", like=task.train[0][0], hidden=16)), []
    model.trained_on = facts_of(task)
    other = {"age": rng.random((12, 4)), "radius": known["radius"], "mass": known["mass"]}
    swapped = walks(num=12, frames=6, attributes=other, meta={"length_unit": "km"})
    one, two = (
        read(predict(model, t, tmp_path / name, **OPTIONS, notify=said.append))
        for name, t in (("one", data), ("two", swapped))
    )
    assert np.array_equal(one.x, two.x)
    assert list(two.attributes) == ["age", "radius", "mass"]  # the file's own
    assert said == [
        "warning: age: the model was trained without it; it is not read.",
        "warning: length_unit: the model was trained on data in m, these are in km.",
    ]
    with pytest.raises(InputError, match="radius: the model was trained with this attribute"):
        predict(model, walks(attributes={"mass": np.ones(4)}), tmp_path / "three", **OPTIONS)
    assert not (tmp_path / "three").exists()


def tracks():
    """Two recordings in which nodes come and go, three slots."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 12, 3, 2)).cumsum(1)
    observed = np.ones((2, 12, 3), dtype=bool)
    observed[0, :5, 1] = observed[0, 8:, 2] = observed[1, 4, 0] = False
    ids = np.broadcast_to(np.arange(3), observed.shape).copy()
    ids[0, :5, 1] = ids[0, 8:, 2] = -1
    ids[1, 6:, 2] = 7  # another has its place
    x = np.where(observed[..., None], x, 0.0)
    whole = Trajectories.from_arrays(x, times=np.arange(12.0), observed=observed)
    return replace(whole, ids=ids)


def test_paths_are_the_models_own_for_each_window(tmp_path):
    t, model = tracks(), build_model("straight-line")
    options = dict(length=2, frame_time=1.0, horizon_times=(1.0, 2.0, 3.0))
    out = read(predict(model, t, tmp_path / "out", batch_size=4, **options))
    assert len(out) == count_windows(t, length=2, frame_time=1.0) == 22
    assert out.times.tolist() == [1.0, 2.0, 3.0]
    assert out.meta["recordings"][0] == "0 after step 1"
    assert out.meta["recordings"][-1] == "1 after step 11"
    windows = Windows(t, length=2, stride=1, target_steps=(1, 2, 3), dtype=torch.float64)
    runs, frames = windows.locate()
    for w in range(len(windows)):
        graph, _ = windows[w]
        path = int(runs[w]) * 11 + int(frames[w, 1]) - 1
        x = out.x[path][:, out.observed[path][0]]
        np.testing.assert_allclose(x, model(graph).x[0].numpy(), atol=1e-9)
        assert (
            out.ids[path][0][out.observed[path][0]].tolist()
            == windows.ids_of(np.array([w]))[0].tolist()
        )


def test_single_forecasts_stay_in_their_slots(tmp_path):
    t, model = tracks(), build_model("last-frame")
    options = dict(length=2, frame_time=1.0, horizon_times=(1.0,))
    out = read(predict(model, t, tmp_path / "out", **options))
    assert out.x.shape == (2, 11, 3, 2)
    assert np.array_equal(out.observed, t.observed[:, 1:])
    assert np.array_equal(out.ids, t.ids[:, 1:])
    np.testing.assert_allclose(out.x, np.where(out.observed[..., None], t.x[:, 1:], 0.0))


def test_tables_of_forecasts_have_the_users_ids_and_frames(tmp_path):
    frames, people = np.meshgrid(np.arange(0, 100, 10), ["ada", "ben"], indexing="ij")
    rng = np.random.default_rng(0)
    table = {
        "frame": frames.ravel(),
        "id": people.ravel(),
        "x": rng.random(20),
        "y": rng.random(20),
    }
    absent = (table["id"] == "ben") & (table["frame"] < 50)
    table = {name: column[~absent] for name, column in table.items()}
    t, model = Trajectories.from_table(table), build_model("straight-line")
    options = dict(length=2, frame_time=10.0, horizon_times=(10.0, 20.0), last=True)
    lines = predict(model, t, tmp_path / "out.csv", **options).read_text().splitlines()
    assert lines[0] == "last_frame,frame,id,x,y,vx,vy"
    cells = [line.split(",") for line in lines[1:]]
    assert [row[:3] for row in cells] == [
        ["90", "100", "ada"], ["90", "100", "ben"], ["90", "110", "ada"], ["90", "110", "ben"],
    ]  # fmt: skip
    ada = table["x"][table["id"] == "ada"]
    assert float(cells[2][3]) == pytest.approx(ada[-1] + 2 * (ada[-1] - ada[-2]))


def test_a_table_has_the_spread_of_models_that_say_one(tmp_path):
    t = simulate("springs", 2, save=range(0, 50, 10), seed=0)
    model = build_model("set-2", samples=4, targets=2, base="straight-line").double()
    options = dict(length=4, frame_time=float(t.times[1]), horizon_times=(0.01, 0.02))
    head, *rows = predict(model, t, tmp_path / "out.csv", **options).read_text().splitlines()
    assert head.endswith("vx,vy,vz,spread")
    springs = t.attributes["spring"][:1, None, ..., None]
    graph = SpacetimeGraph(
        t.x[:1, :4], t.v[:1, :4], edge_attr=springs, times=t.times[:4], horizon=[[0.01, 0.02]]
    )
    spread = model(graph).spread.detach()
    assert float(rows[0].rpartition(",")[2]) == pytest.approx(spread[0, 0, 0].item())
