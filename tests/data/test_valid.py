"""All data that become trajectories are real, finite and consistent."""

from decimal import Decimal

import numpy as np
import pytest
import torch

from spacetime_en import InputError
from spacetime_en.data import Trajectories
from spacetime_en.data.valid import FLOAT32_MAX

X = np.random.default_rng(0).standard_normal((3, 6, 4, 2))


def like(x, place, value, dtype=float):
    changed = x.astype(dtype)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(x=X + 1j), "x: expected real numbers, found values of type complex128"),
        (dict(x=np.full((3, 4, 2), np.datetime64("2026-01-01"))), "x: expected real .* datetime64"),
        (dict(x=X > 0), "x: expected real numbers, found values of type bool"),
        (dict(x=X.astype(object)), "x: expected real numbers, found values of type object"),
        (dict(x=X.astype(str)), "x: expected real numbers, found values of type <U"),
        (dict(x=[[[[Decimal(1)]]]]), "x: expected real numbers, found values of type object"),
        (dict(x=[[[[10**30]]]]), "x: expected real numbers, found values of type object"),
        (dict(x=[[1.0], [1.0, 2.0]]), "x: cannot be made an array"),
        (dict(x=torch.ones(3, 4, 2, requires_grad=True)), "x: cannot be made an array"),
        (dict(x=np.ma.masked_greater(X, 1)), "x: some values are masked"),
        (dict(x=None), "x: expected real numbers"),
        (dict(x=3.0), r"x: expected shape .*found \(\)"),
        (dict(x=X[:0]), r"x: expected shape .*found \(0, 6, 4, 2\)"),
        (dict(x=X[:, :, :0]), r"x: expected shape .*found \(3, 6, 0, 2\)"),
        (dict(x=like(X, (1, 2, 3, 0), np.inf)), "x: NaN or infinite values at run 1, frame 2, nod"),
        (dict(x=like(X, (1, 2, 3, 0), 1e300)), r"x: 1e\+300 at run 1, frame 2, node 3 is beyond"),
        (dict(x=like(X, 0, "1e4000", np.longdouble)), "x: NaN or infinite values at run 0"),
        (dict(x=X, v=X * np.nan), "v: NaN or infinite values at run 0, frame 0, node 0"),
        (dict(x=X * 1e38, times=np.arange(6) * 1e-5), "v: .*is beyond 3.4e"),
        (dict(x=X, times=[0, 1, 2, 3, 4, np.inf]), "times: expected 6 increasing numbers"),
        (dict(x=X, times=[0, 1, np.nan, 3, 4, 5]), "times: expected 6 increasing numbers"),
        (dict(x=X, times=np.arange(6) * 1e-60), "times: .* for single precision"),
        (dict(x=X, times=np.arange(6) * 1e300), "times: .* for single precision"),
        (dict(x=X, times=np.arange("2026-01-01", "2026-01-07", dtype="datetime64[D]")), "times: "),
        (dict(x=X, times=3.0), "times: expected 6 increasing numbers"),
        (dict(x=X, steps=[0, 1, 1, 2, 3, 4]), "steps: expected 6 increasing numbers"),
        (dict(x=X, steps=[0, 1, 2, 3, 4, 10**30]), "steps: expected real numbers, found .* object"),
        (dict(x=X, steps=[0, 1, 2, 3, 4, 2**63]), r"steps: expected whole numbers up to 2\^53"),
        (dict(x=X, steps=[0, 1, 2, 3, 4, np.nan]), r"steps: expected whole numbers up to 2\^53"),
        (dict(x=X, box=[1.0, -1.0]), "box: expected positive edge lengths"),
        (dict(x=X, box=[1.0, np.inf]), "box: expected finite lengths"),
        (dict(x=X, box=[[1.0, 2.0], [2.0, 4.0]]), "box: expected a cell with a volume"),
        (dict(x=X, box=3.0), "box: expected 2 edge lengths or 2 cell vectors"),
        (dict(x=X, attributes={"a b": np.ones(4)}), "attributes: 'a b' cannot be a name"),
        (dict(x=X, attributes={"../a": np.ones(4)}), r"attributes: '../a' cannot be a name"),
        (dict(x=X, attributes={3: np.ones(4)}), "attributes: 3 cannot be a name"),
        (dict(x=X, attributes={"a": 1.0}), r"a: expected shape \(4,\)"),
        (dict(x=X, attributes={"a": [1, 2, 3, "x"]}), "a: expected real numbers"),
        (dict(x=X, attributes={"a": np.full(4, 1e300)}), "a: 1e.300 at run 0, node 0 is beyond"),
        (dict(x=X, attributes={f"a{i}": np.ones(4) for i in range(501)}), "at most 500, found 501"),
        (dict(x=X, meta=[("a", 1)]), "meta: expected named entries"),
        (dict(x=X, meta={"up": [0, 0]}), "meta: up: expected a direction of 2 numbers"),
        (dict(x=X, meta={"up": "up"}), "meta: up: expected real numbers"),
        (dict(x=X, meta={"edges": [[0, 9]]}), "meta: edges: expected pairs of nodes from 0 to 3"),
        (dict(x=X, meta={"system": ["charged"]}), "meta: system: expected a text"),
        (dict(x=X, meta={3: "a"}), "meta: expected names, found 3"),
    ],
)
def test_bad_values_are_told_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        Trajectories.from_arrays(**arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_numbers_of_any_type_and_order_are_numbers():
    whole = np.arange(48).reshape(3, 4, 2, 2)
    for dtype in (">f8", "<f4", ">f4", ">i8", "u1", "f2", np.longdouble):
        t = Trajectories.from_arrays(whole.astype(dtype), box=np.array([9, 9], dtype=">i4"))
        assert t.x.dtype == np.dtype("<f8")
        assert np.array_equal(t.x, whole)
    named = Trajectories.from_arrays(X, attributes={"fixed": np.array([True, False, True, False])})
    assert named.attributes["fixed"][0].tolist() == [1, 0, 1, 0]
    assert np.array_equal(Trajectories.from_arrays(torch.from_numpy(X)).x, X)


def test_the_largest_number_of_single_precision_is_one():
    x = np.zeros((2, 1, 1))
    x[:] = FLOAT32_MAX
    assert Trajectories.from_arrays(x).x.max() == FLOAT32_MAX


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "runs: expected"),
        ([np.zeros((5, 2))], r"runs: expected \(T, N, n\)"),
        ([np.zeros((1, 2, 3))], "at least two frames"),
        ([np.zeros((5, 2, 3)), "hello"], "run 1: expected real numbers"),
        ([np.full((5, 2, 3), np.inf)], "x: NaN or infinite values at run 0"),
    ],
)
def test_bad_runs_are_told_in_one_sentence(runs, message):
    with pytest.raises(InputError, match=message):
        Trajectories.from_runs(runs)


@pytest.mark.parametrize("step", [0, -1, np.nan, np.inf, 1e-300, "1", None, [1, 2]])
def test_a_time_step_is_a_time(step):
    with pytest.raises(InputError, match="time_step: expected"):
        Trajectories.from_runs([np.zeros((5, 2, 3))], time_step=step)


def test_runs_that_would_not_fit_in_memory_once_filled_up_are_refused(monkeypatch):
    monkeypatch.setattr("spacetime_en._util.machine.free_memory", lambda: 10**6)
    runs = [np.zeros((10_000, 1, 1)), *[np.zeros((2, 1, 1))] * 20]
    with pytest.raises(InputError, match=r"runs.*takes .* MB of memory, and 1 MB are free"):
        Trajectories.from_runs(runs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(v=X[:2]), "v: expected the shape of x"),
        (dict(steps=np.arange(5)), "steps: expected 6 increasing numbers"),
        (dict(times=np.full(6, np.nan)), "times: expected 6 increasing numbers"),
        (dict(lengths=np.array([6, 7, 1])), "lengths: expected 3 numbers of frames from 1 to 6"),
        (dict(lengths=np.array([6, 0, 1])), "lengths: expected 3 numbers of frames from 1 to 6"),
        (dict(lengths=np.array([6, 1])), "lengths: expected 3 numbers of frames from 1 to 6"),
        (dict(attributes={"a": X}), r"a: expected shape \(3, 4\) or \(3, 4, 4\)"),
        (dict(box=np.eye(3)), "box: expected 2 edge lengths"),
        (dict(meta={"edges": 0}), "meta: edges: expected pairs of nodes from 0 to 3"),
        (dict(meta={"edges": {}}), "meta: edges: expected"),
        (dict(meta={"edges": [[0, 4]]}), "meta: edges: expected pairs of nodes from 0 to 3"),
    ],
)
def test_trajectories_do_not_exist_with_parts_that_do_not_fit(changes, message):
    parts = dict(x=X, v=X, steps=np.arange(6), times=np.arange(6.0)) | changes
    with pytest.raises(InputError, match=message):
        Trajectories(**parts)
