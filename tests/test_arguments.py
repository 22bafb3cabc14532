"""Any Python arguments give a correct result, or a sentence about the argument."""

import numpy as np
import pytest
import torch

import spacetime_en as st
from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.data import Task, Trajectories, Windows, load_task, simulate
from spacetime_en.data.readers import read
from spacetime_en.evaluation import evaluate
from spacetime_en.neighbours import connect, nearest_neighbours, radius_neighbours
from spacetime_en.report.animation import make_scene
from spacetime_en.runs.export import export
from spacetime_en.runs.prediction import predict
from spacetime_en.training import fit
from tests.helpers import particles

X = torch.randn(2, 4, 5, 3)
ARRAYS = np.random.default_rng(0).standard_normal((12, 12, 3, 3)).cumsum(1)


class Broken:
    """Neither an array nor to be shown."""

    def __array__(self, *_: object, **__: object) -> object:
        raise RuntimeError("no array")

    def __repr__(self) -> str:
        raise RuntimeError("no words")


NO_TENSORS = {
    "complex": torch.complex(X, X),
    "sparse": X.to_sparse(),
    "nested": torch.nested.nested_tensor(list(X), layout=torch.jagged),
    "without numbers": X.to("meta"),
    "masked": np.ma.masked_less(X.numpy(), 0),
    "broken": Broken(),
    "objects": np.full(X.shape, None),
    "times": np.zeros(X.shape, "m8[s]"),
}
NO_NUMBERS = ["3", 1.5, -1, 0, True, float("nan"), 1j, [1], None, 2**63, 10**5000, object()]


@pytest.fixture(scope="module")
def trajectories():
    return Trajectories.from_arrays(ARRAYS, ARRAYS, times=np.arange(12.0))


@pytest.fixture(scope="module")
def task(trajectories):
    return Task.from_trajectories(trajectories, length=3)


def refused(call, name=""):
    with pytest.raises(InputError) as caught:
        call()
    said = str(caught.value)
    assert said.startswith(name), said
    assert "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize("what", NO_TENSORS)
def test_what_is_no_dense_tensor_of_real_numbers(what):
    value = NO_TENSORS[what]
    refused(lambda: SpacetimeGraph(value, X), "x: ")
    refused(lambda: SpacetimeGraph(X, value), "v: ")
    for name in ("features", "edge_attr", "observed", "times", "box"):
        refused(lambda name=name: SpacetimeGraph(X, X, **{name: value}), f"{name}: ")
    refused(lambda: SpacetimeGraph.from_particles(X, X, value), "charge: ")
    refused(lambda: nearest_neighbours(value, 2), "x: ")
    refused(lambda: nearest_neighbours(X, 2, box=value), "box: ")
    refused(lambda: nearest_neighbours(X, 2, present=value), "present: ")


@pytest.mark.parametrize("other", [None, "word", 3, [1], {"a": 1}, X, Broken(), SpacetimeGraph])
def test_things_of_another_class(other, task, trajectories, tmp_path):
    model, out = build_model("linear"), tmp_path / "out.npz"
    windows = {"length": 3, "frame_time": 1.0, "horizon_times": (1.0,)}
    graph = particles()
    refused(lambda: collate([graph, other]), "graph 1: ")
    refused(lambda: collate([(graph, other)]), "collate: ")
    refused(lambda: connect(other, k=2), "graph: ")
    refused(lambda: fit(other, task), "model: ")
    refused(lambda: fit(model, other), "task: ")
    refused(lambda: predict(other, trajectories, out, **windows), "model: ")
    refused(lambda: predict(model, other, out, **windows), "trajectories: ")
    refused(lambda: evaluate(other, task), "model: ")
    refused(lambda: evaluate(model, other), "task: ")
    refused(lambda: export(other, graph, out, "onnx"), "model: ")
    refused(lambda: export(model, other, out, "onnx"), "example: ")
    refused(lambda: Task.from_trajectories(other), "trajectories: ")
    refused(lambda: SpacetimeGraph.from_pyg(other))
    if other is not None:
        refused(lambda: build_model("egnn", like=other), "like: ")
        refused(lambda: fit(model, task, other), "settings: ")
        refused(lambda: fit(model, task, state=other), "state: ")
        if not isinstance(other, dict):
            refused(lambda: Trajectories.from_arrays(ARRAYS, attributes=other), "attributes: ")
            refused(lambda: Trajectories.from_arrays(ARRAYS, meta=other), "meta: ")


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: f"{type(value).__name__}")
def test_what_is_no_positive_whole_number(value, task, trajectories, tmp_path):
    windows = {"length": 3, "frame_time": 1.0, "horizon_times": (1.0,), "out": tmp_path / "out.npz"}
    model = build_model("linear")
    refused(lambda: nearest_neighbours(X, value), "k: ")
    refused(lambda: predict(model, trajectories, **windows | {"length": value}), "length: ")
    refused(lambda: evaluate(model, task, batch_size=value), "batch_size")
    refused(lambda: simulate("charged", value), "num: ")
    refused(lambda: make_scene({"m": model}, task, 0, value), "frames: ")
    for at, name in enumerate(("length", "stride", "target_steps")):
        sizes = [3, 1, 1]
        sizes[at] = value
        if name == "target_steps" and value in ("3", [1]):
            continue  # "3" and several are fine
        refused(lambda sizes=sizes: Windows(trajectories, *sizes), name)
    if value is not None:
        refused(lambda: Task.from_trajectories(trajectories, counts=(value, 1, 1)), "counts")
        refused(lambda: Task.from_trajectories(trajectories, counts=value), "counts")
        refused(lambda: radius_neighbours(X, 1.0, most=value), "most: ")
    if value != 0:
        refused(lambda: Windows(trajectories, 3, 1, 1, noise_seed=value), "noise_seed: ")


@pytest.mark.parametrize("value", [None, 3, 1.5, [1], X])
def test_what_is_no_name_and_no_path(value, trajectories, task):
    refused(lambda: build_model(value), "preset: ")
    refused(lambda: load_task(value), "name: ")
    refused(lambda: Trajectories.open(value), "folder: ")
    refused(lambda: trajectories.save(value), "folder: ")
    refused(lambda: read(value), "path: ")
    refused(lambda: st.Forecaster.from_pretrained(value), "pretrained_model_name_or_path: ")
    refused(lambda: build_model("linear").save_pretrained(value), "save_directory: ")


@pytest.mark.parametrize("value", ["1", 0, -1.0, float("inf"), 1e308, 10**400, None, [1.0]])
def test_what_is_no_length(value, trajectories, task, tmp_path):
    refused(lambda: radius_neighbours(X, value), "radius: ")
    refused(lambda: build_model("egnn", length_scale=value), "length_scale: ")
    if value != 0:
        refused(lambda: Windows(trajectories, 3, 1, 1, noise=value), "noise: ")


def test_whole_numbers_are_distances_as_well():
    """(As an integer of 64 bits without sign, the kernel took it for another number.)"""
    assert torch.equal(radius_neighbours(X, 2**63), radius_neighbours(X, 2.0**63))


def test_windows_longer_than_any_data(trajectories):
    for sizes in ((2**53, 1, 1), (2, 2**53, 1), (2**53, 2**53, 2**53)):
        refused(lambda sizes=sizes: Windows(trajectories, *sizes), "windows: no window of ")


def test_counts_whose_sum_is_no_integer_of_64_bits(trajectories):
    for counts in ((2**62, 2**62, 2**62), (10**5000, 1, 1), (0, 1, 1)):
        refused(lambda counts=counts: Task.from_trajectories(trajectories, counts=counts), "counts")


def test_arrays_that_are_none_of_real_numbers(trajectories):
    steps, times = np.arange(12), np.arange(12.0)
    good = {"x": ARRAYS, "v": ARRAYS, "steps": steps, "times": times}
    bad = {
        "x": [ARRAYS + 0j, torch.tensor(ARRAYS), ARRAYS.tolist(), ARRAYS.astype(object)],
        "steps": [steps + 0.5, list(steps), steps.astype(object)],
        "times": [times.astype("M8[s]"), list(times)],
        "box": [[1.0, 1.0, 1.0]],
        "lengths": [[12] * 12],
        "attributes": [[1], {"mass": [1.0]}],
        "meta": [[1]],
    }
    for name, values in bad.items():
        for value in values:
            refused(lambda name=name, value=value: Trajectories(**good | {name: value}))


def test_weights_that_are_nan_are_neither_saved_nor_exported(tmp_path, task):
    model = build_model("linear")
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    refused(lambda: model.save_pretrained(tmp_path / "model"), "model: ")
    refused(lambda: export(model, task.train[:1][0], tmp_path / "m.pt2", "torch-export"), "model: ")
    assert not list(tmp_path.iterdir())


def test_no_motions_of_space():
    graph = particles()
    refused(lambda: graph.rotate(torch.eye(2)), "q: ")
    refused(lambda: graph.translate(torch.ones(7)), "b: ")
    refused(lambda: graph.permute(torch.tensor([0, 0, 1, 2])), "p: ")


def test_unknown_settings_have_the_nearest_name(task):
    refused(lambda: fit(build_model("linear"), task, batchsize=3), "setting: there is no")


def test_numbers_and_arrays_of_numpy_count_as_python_s(trajectories):
    Windows(
        trajectories, np.int64(3), np.int32(1), np.int64(1), runs=[0, 1], steps=(steps := (0, 9))
    )
    Windows(trajectories, 3, 1, 1, steps=tuple(np.array(steps)), starts=[(0, 1), (1, 1)])
    assert len(simulate("charged", np.int64(2), save=np.array([0, 10]))) == 2
    assert isinstance(collate([(particles(), Forecast(*torch.zeros(2, 3, 1, 4, 3)))]), tuple)
