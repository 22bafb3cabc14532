import numpy as np
import pytest
import torch

from spacetime_en import build_model, evaluate, load_task
from spacetime_en._util.terminal import Terminal
from spacetime_en.data import Task, Trajectories
from spacetime_en.report.tables.evaluation import print_evaluation
from tests.conservation.systems import WINDOWS, chained, simulated
from tests.helpers import liven

TIMES = 5


def test_an_unknown_system_is_measured_by_what_it_is_found_to_conserve(monkeypatch, capsys):
    task = chained()
    report = evaluate(build_model("straight-line"), task).report
    drift = report["drift"]
    assert list(drift["truth"]) == ["momentum", "angular_momentum", "energy_found"]
    assert drift["found"]["energy_found"]["coefficients"]["r²"] == pytest.approx(0.5, rel=0.01)
    assert drift["truth"]["energy_found"]["median"] < 0.01
    assert drift["forecast"]["energy_found"]["median"] > 0.1
    assert drift["forecast"]["momentum"]["p90"] < 1e-6
    assert len(drift["against_time"]["forecast"]["momentum"]) == TIMES
    growing = drift["against_time"]["forecast"]["energy_found"]
    assert growing == sorted(growing)
    monkeypatch.setenv("COLUMNS", "80")
    print_evaluation(report, Terminal())
    printed = capsys.readouterr().out
    assert "energy found: Σ |v|²/2 + 0.5" in printed
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(("every", "names"), [(1, ["energy_found"]), (2, [])])
def test_velocities_that_are_differences_belong_to_the_middle_of_frames(every, names):
    """Exact springs, positions only: their energy is found, and the truth keeps it.

    If windows skip frames, differences in them and in targets are over different times.
    """
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 300, 1, 4, 2))
    x, v = (t - t.mean(2, keepdims=True) for t in (x, v))
    angle = 2 * 0.3 * np.arange(16)[:, None, None]
    runs = Trajectories.from_arrays(
        x * np.cos(angle) + v * np.sin(angle), times=0.3 * np.arange(16)
    )
    targets = ",".join(str(every * step) for step in range(1, 5))
    windows = {"length": 4, "stride": every, "target_steps": targets}
    task = Task.from_trajectories(runs, counts=(220, 20, 60), **windows)
    drift = evaluate(build_model("straight-line"), task).report["drift"]
    assert [name for name in drift["found"] if "energy" in name] == names
    assert all(drift["truth"][name]["p90"] < 1e-4 for name in names)


def test_the_potential_of_a_known_system_needs_no_search():
    drift = evaluate(build_model("last-frame"), simulated("springs")).report["drift"]
    assert list(drift["truth"]) == ["momentum", "angular_momentum", "energy"]
    assert drift["found"] == {}
    assert all(row["p90"] < 1e-5 for row in drift["forecast"].values())  # nothing moves


def test_a_model_with_a_law_of_its_own_has_an_energy():
    model = liven(build_model("set-flow", hidden=8))
    drift = evaluate(model, simulated("charged")).report["drift"]
    assert "learned_energy" in drift["forecast"]
    assert drift["forecast"]["learned_energy"]["median"] < 0.1
    heavy = build_model("set-flow", edge_features=0, node_features=2, hidden=8)
    assert "learned_energy" not in evaluate(heavy, simulated("gravity")).report["drift"]["truth"]
    massive = liven(build_model("hnn-pairs", edge_features=0, node_features=2, hidden=8))
    assert "learned_energy" in evaluate(massive, simulated("gravity")).report["drift"]["truth"]


def test_noise_that_was_added_here_is_no_drift(cache):
    noisy = load_task("charged-noisy", counts=(40, 12, 12), target_steps=10, length=3, cache=cache)
    drift = evaluate(build_model("last-frame"), noisy).report["drift"]
    assert drift["truth"]["momentum"]["median"] < 1e-6


def test_nodes_that_leave_do_not_count():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 11, 4, 2)).cumsum(1)
    x[:, 8:, 3] = np.nan
    task = Task.from_trajectories(Trajectories.from_arrays(x), counts=(20, 10, 10), **WINDOWS)
    drift = evaluate(build_model("last-frame"), task).report["drift"]
    assert drift["forecast"]["momentum"]["p90"] == 0
    assert all(np.isfinite(row["mean"]) for row in drift["truth"].values())


def test_turned_data_drift_as_much():
    x, v = (np.asarray(t) for t in (chained().test.trajectories.x, chained().test.trajectories.v))
    q = np.array([[0.6, -0.8], [0.8, 0.6]])
    reports = []
    for a, b in ((x, v), (x @ q.T + 5, v @ q.T)):
        runs = Trajectories.from_arrays(a, b, times=0.2 * np.arange(11))
        task = Task.from_trajectories(runs, counts=(220, 20, 60), **WINDOWS)
        reports.append(evaluate(build_model("straight-line"), task).report["drift"])
    for name, row in reports[0]["truth"].items():
        assert reports[1]["truth"][name]["median"] == pytest.approx(
            row["median"], rel=1e-2, abs=1e-6
        )
    assert torch.tensor(reports[0]["against_time"]["truth"]["momentum"]).isfinite().all()
