import csv
import json

import numpy as np
import pytest
import torch

from spacetime_en import (
    Forecast,
    InputError,
    LastFrame,
    SharedRidge,
    StraightLine,
    build_model,
    fit,
    simulate,
)
from spacetime_en._util.terminal import Terminal
from spacetime_en.data import Task, Trajectories
from spacetime_en.data.compatibility import facts_of
from spacetime_en.data.datasets.registry import load_task
from spacetime_en.evaluation import RIVALS, evaluate
from spacetime_en.metrics import standard_deviation
from spacetime_en.report.tables.evaluation import print_evaluation, write_evaluation
from tests.helpers import liven


def test_errors_are_those_of_a_plain_loop(tiny_task):
    model = liven(build_model("egnn", hidden=8))
    found = evaluate(model, tiny_task, batch_size=5)
    report = found.report
    position = []
    with torch.no_grad():
        for row in range(len(tiny_task.test)):
            graph, target = tiny_task.test[row]
            position.append(float((model(graph).x - target.x).square().mean()))
    expected = torch.tensor(position).double()
    torch.testing.assert_close(found.errors["model"].position, expected, rtol=1e-4, atol=1e-6)
    assert report["windows"] == 12
    assert report["position_mse"]["mean"] == pytest.approx(sum(position) / 12, rel=1e-5)
    middle = sorted(position)[5:7]
    assert report["position_mse"]["median"] == pytest.approx(sum(middle) / 2, rel=1e-5)


def test_trivial_forecasts_stand_beside_the_model(tiny_task):
    graph, target = tiny_task.test[:]
    report = evaluate(build_model("egnn", hidden=8), tiny_task).report
    x, _ = target.last
    last = (graph.x[:, -1] - x).square().mean(dim=(1, 2))
    straight = (graph.x[:, -1] + 0.1 * graph.v[:, -1] - x).square().mean(dim=(1, 2))
    for name, error in (("last_frame", last), ("straight_line", straight)):
        row = report[name]
        assert row["position_mse"]["mean"] == pytest.approx(float(error.mean()), rel=1e-4)
        assert {k: row[k] for k in row["position_mse"]} == row["position_mse"]
        assert row["velocity_mse"]["median"] > 0
    again = evaluate(build_model("straight-line"), tiny_task).report
    assert again["position_mse"] == report["straight_line"]["position_mse"]


def test_ridge_stands_there_as_it_is_trained(tiny_task):
    graph, _ = tiny_task.train[:1]
    ridge = build_model("ridge-shared", like=graph)
    fit(ridge, tiny_task)
    report = evaluate(ridge, tiny_task).report
    for key in ("position_mse", "velocity_mse"):
        assert report["ridge"][key] == pytest.approx(report[key], rel=1e-4)


def test_ridge_is_left_out_where_it_does_not_fit_the_data(tiny_task, monkeypatch, capsys):
    def solve(self, train, val):
        raise InputError("data: of another kind.")

    monkeypatch.setattr(SharedRidge, "solve", solve)
    report = evaluate(build_model("last-frame"), tiny_task).report
    assert "ridge" not in report
    print_evaluation(report, Terminal())
    assert "ridge" not in capsys.readouterr().out


def test_of_a_large_training_set_ridge_takes_a_part(tiny_task, monkeypatch):
    seen = []
    solve = SharedRidge.solve

    def spy(self, train, val):
        examples = list(train)
        seen.extend(graph.x.shape[0] for graph, _ in examples)
        return solve(self, examples, val)

    monkeypatch.setattr(SharedRidge, "solve", spy)
    monkeypatch.setattr("spacetime_en.evaluation._MOST_WINDOWS", 15)
    evaluate(build_model("last-frame"), tiny_task, batch_size=10)
    assert seen == [10, 5]


def test_symmetry_and_conservation_are_measured(tiny_task):
    report = evaluate(build_model("straight-line"), tiny_task).report
    assert max(report["equivariance_error"].values()) < 1e-5
    # Going straight on keeps momentum and angular momentum exactly, but not the energy.
    drift = report["drift"]
    assert drift["forecast"]["momentum"]["p90"] < 1e-6
    assert drift["forecast"]["angular_momentum"]["p90"] < 1e-6
    assert drift["forecast"]["energy"]["p90"] > 10 * drift["truth"]["energy"]["median"]
    crooked = evaluate(liven(build_model("mlp")), tiny_task).report
    assert crooked["equivariance_error"]["rotation"] > 1e-2


def test_conservation_by_hand(tiny_task):
    """The truth's drift is the simulation's; the last frame has none."""
    report = evaluate(build_model("egnn", hidden=8), tiny_task).report["drift"]
    graph, target = tiny_task.test[:]
    before = graph.v[:, -1].sum(1)
    size = graph.v[:, -1].norm(dim=-1).sum(1)
    change = (target.last[1].sum(1) - before).norm(dim=-1) / size
    assert report["truth"]["momentum"]["mean"] == pytest.approx(float(change.mean()), abs=1e-6)
    still = evaluate(build_model("last-frame"), tiny_task).report["drift"]
    for key in ("momentum", "angular_momentum", "energy"):
        assert still["forecast"][key]["p90"] < 1e-5  # the last frame is the last frame
    assert still["truth"]["energy"] != still["forecast"]["energy"]


def test_dropout_is_off(tiny_task):
    model = build_model("set", hidden=8, blocks=2, dropout=0.9).train()
    one, other = (evaluate(model.train(), tiny_task).report["position_mse"] for _ in range(2))
    assert one == other


def test_one_row_a_window_and_one_object(tiny_task, tmp_path):
    found = evaluate(build_model("last-frame"), tiny_task, split="val")
    report, table = write_evaluation(found, tmp_path / "new", "name")
    assert json.loads(report.read_text()) == found.report
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["trajectory"]) for row in rows] == list(range(40, 52))
    assert {row["first_step"] for row in rows} == {"0"}
    assert [float(row["model_position_mse"]) for row in rows] == (
        found.errors["model"].position.tolist()
    )
    assert rows[0]["model_velocity_mse"] == rows[0]["last_frame_velocity_mse"]


def test_the_table_fits_80_columns_whatever_the_numbers(tiny_task, monkeypatch, capsys):
    report = evaluate(build_model("last-frame"), tiny_task).report
    places = [("position_mse", key) for key in ("mean", "standard_error", "median", "p90")]
    places += [("velocity_mse", key) for key in ("mean", "standard_error")]
    sizes = (1.2345e-13, 123456.0, 0.0012345, 9999.9, 1.5e300, 5.6e-9)
    for (what, key), size in zip(places, sizes, strict=True):
        report["least_squares_line"][what][key] = size
    monkeypatch.setenv("COLUMNS", "80")
    print_evaluation(report, Terminal())
    printed = capsys.readouterr().out
    line = next(x for x in printed.splitlines() if x.startswith("least squares"))
    found = line.removeprefix("least squares line").split()
    assert found == ["1.23e-13", "1e+05", "0.001234", "1e+04", "1.50e+300", "6e-09"]


def test_unknown_split(tiny_task):
    with pytest.raises(InputError, match="split: expected 'train' or 'val' or 'test'"):
        evaluate(build_model("last-frame"), tiny_task, split="tset")


def places(b=0.0, **fields):
    """A task somewhere in space."""
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((12, 6, 4, 3)).cumsum(1), rng.standard_normal((12, 6, 4, 3))
    fields = {"attributes": {"mass": rng.random(4), "radius": rng.random(4)}} | fields
    data = Trajectories.from_arrays(x + b, v, times=0.5 * np.arange(6), **fields)
    return Task.from_trajectories(data, length=3, stride=1, target_steps=2)


def test_errors_are_the_same_far_from_the_origin():
    near, far = places(), places(5e6)
    model = liven(build_model("egnn", like=near.train[0][0], hidden=8))
    here, there = (evaluate(model, task).report for task in (near, far))
    for key in ("position_mse", "velocity_mse", "last_frame"):
        assert there[key]["mean"] == pytest.approx(here[key]["mean"], rel=1e-5)


def test_other_data_are_seen_as_those_trained_on_or_refused():
    task = places()
    model = liven(build_model("mlp", like=task.train[0][0], hidden=8))
    model.trained_on = facts_of(task)
    known = task.train.trajectories.attributes
    swapped = places(attributes=dict(reversed(known.items())))
    assert evaluate(model, swapped).report == evaluate(model, task).report
    assert evaluate(model, task).report["warnings"] == []
    elsewhere = evaluate(model, places(1e3)).report  # far from all that it has seen
    assert elsewhere["position_mse"]["mean"] > 1e4
    with pytest.raises(InputError, match="box: the model was trained in open space"):
        evaluate(model, places(box=[1e3, 1e3, 1e3]))
    with pytest.raises(InputError, match="mass: the model was trained with this attribute"):
        evaluate(model, places(attributes={}))


class Sampled(StraightLine):
    """The straight line, and samples around it."""

    def forecast(self, graph):
        forecast = super().forecast(graph)
        sizes = torch.linspace(-1, 1, 25).view(1, -1, 1, 1, 1)
        samples = forecast.x.unsqueeze(1) + sizes
        return forecast.replace(samples=samples, spread=standard_deviation(samples))


@pytest.fixture(scope="module")
def tracks():
    """Nodes that come and go in twelve recordings, and three target times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 9, 4, 2)).cumsum(1)
    x[rng.random(x.shape[:3]) < 0.15] = np.nan
    data = Trajectories.from_arrays(x, times=0.5 * np.arange(9))
    return Task.from_trajectories(data, length=3, stride=1, target_steps=(1, 2, 4))


def test_paths_are_measured_as_in_a_plain_loop(tracks):
    model = Sampled()
    found = evaluate(model, tracks, batch_size=3)
    report = found.report
    at, best = {0: [], 1: [], 2: []}, []
    for index in range(len(tracks.test)):
        graph, target = tracks.test[index]
        forecast = model(graph)
        for node in range(graph.x.shape[2]):
            times = [t for t in range(3) if target.mask is None or target.mask[0, t, node]]
            for t in times:
                at[t].append(float((forecast.x - target.x)[0, t, node].norm()))
            of_samples = (forecast.samples[0, :20] - target.x)[:, times, node].norm(dim=-1)
            if times:
                best.append((float(of_samples.mean(1).min()), len(times)))
    every = [d for ds in at.values() for d in ds]
    assert report["ade"] == pytest.approx(sum(every) / len(every), rel=1e-5)
    assert report["fde"] == pytest.approx(sum(at[2]) / len(at[2]), rel=1e-5)
    assert [row["step"] for row in report["error_against_time"]] == [1, 2, 4]
    assert [row["time"] for row in report["error_against_time"]] == pytest.approx([0.5, 1.0, 2.0])
    for t, row in enumerate(report["error_against_time"]):
        assert row["nodes"] == len(at[t])
        assert row["mean_distance"] == pytest.approx(sum(at[t]) / len(at[t]), rel=1e-5)
    assert len({len(ds) for ds in at.values()}) > 1  # some have left
    assert report["best_of"]["k"] == 20
    total = sum(count for _, count in best)
    assert report["best_of"]["ade"] == pytest.approx(sum(d * c for d, c in best) / total, rel=1e-5)
    assert report["paths"]["nodes"] == len(best)
    assert report["straight_line"]["ade"] == pytest.approx(report["ade"])
    assert report["straight_line"]["best_of"] is None
    for rival in RIVALS:
        assert len(report[rival]["error_against_time"]) == 3
    assert report["horizon_times"][-1] == pytest.approx(2.0)
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("targets", ["observed", "clean"])
def test_the_spread_stands_beside_the_errors_as_the_model_states_it(cache, targets):
    settings = {"counts": (8, 4, 6), "target_steps": 2, "targets": targets, "cache": cache}
    task = load_task("charged-noisy", **settings)
    rows, (graph, target) = evaluate(Sampled(), task).report["calibration"], task.test[:]
    assert [row["predicted"] for row in rows] == pytest.approx([(26 / 72) ** 0.5] * 5, rel=1e-4)
    actual = sum(row["actual"] ** 2 for row in rows) / 5
    assert actual == pytest.approx(float((Sampled()(graph).x - target.x).square().mean()), rel=1e-4)
    assert evaluate(StraightLine(), task).report["calibration"] is None


def test_one_target_time_is_no_path(tiny_task):
    report = evaluate(build_model("last-frame"), tiny_task).report
    assert not {"ade", "fde", "error_against_time", "best_of", "paths"} & set(report)


def test_conserved_quantities_are_compared_at_the_last_target_time():
    data = simulate("springs", 20, save=range(0, 80, 10), seed=0)
    path, end = (
        Task.from_trajectories(data, length=3, stride=1, target_steps=steps)
        for steps in ((1, 2, 5), 5)
    )
    found, expected = (
        evaluate(build_model("straight-line"), t).report["drift"] for t in (path, end)
    )
    for what in ("forecast", "truth"):
        for key, row in expected[what].items():
            assert found[what][key] == pytest.approx(row, rel=1e-6)


def test_forecasts_that_are_not_numbers_are_told_and_if_all_are_refused(tiny_task):
    class Broken(LastFrame):
        def forecast(self, graph):
            forecast = super().forecast(graph)
            x = forecast.x.masked_fill(graph.x[:, -1:, :1, :1] < self.limit, torch.nan)
            return Forecast(x, forecast.v)

    model = Broken()
    model.limit = tiny_task.test[:][0].x[:, -1, 0, 0].sort().values[3]
    report = evaluate(model, tiny_task).report
    assert report["warnings"] == ["3 forecasts are NaN or infinite."]
    model.limit = torch.inf
    with pytest.raises(InputError, match="model: all of its forecasts are NaN or infinite"):
        evaluate(model, tiny_task)
