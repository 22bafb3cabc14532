"""One experiment: trained, tested, written atomically, never repeated."""

import dataclasses
import json

import pytest

from spacetime_en._util.errors import InputError
from spacetime_en.compare import trained
from spacetime_en.compare.results import read_result, result_path
from spacetime_en.evaluation import TRIVIAL_FORECASTS
from spacetime_en.reproduce.experiment import (
    PaperJob,
    carry_out,
    checked_result,
    final_result,
    rates,
)
from spacetime_en.reproduce.plan import SCALES, Data, Experiment

SCALE = dataclasses.replace(
    SCALES["quick"], trajectories=((24, 8, 8), (24, 8, 8)), rates=(1e-3, 1e-2)
)


@pytest.fixture
def carried_out(monkeypatch, cache, tmp_path):
    """Carries out experiments in a folder; returns the result as it is on disk."""
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))

    def run(experiment, scale=SCALE):
        for trial in experiment.trials(scale):
            if read_result(tmp_path, trial.name) is None:
                carry_out(trial, scale, tmp_path, lambda *how: None)
        carry_out(experiment, scale, tmp_path, lambda *how: None)
        return read_result(tmp_path, experiment.name)

    return run


def test_a_result_has_errors_cost_symmetry_curve_and_where_it_was_made(carried_out, tmp_path):
    result = carried_out(Experiment(Data(), "set"))
    assert set(result["test"]["position_mse"]) == {"mean", "standard_error", "median", "p90"}
    assert result["test"]["velocity_mse"]["mean"] > 0
    assert max(result["test"]["equivariance_error"].values()) < 1e-4
    training = result["training"]
    assert (training["steps"], training["samples"], training["skipped"]) == (6, 96, 0)
    assert training["seconds"] > 0
    assert [step for step, _ in training["curve"]] == [3, 6]
    assert min(mse for _, mse in training["curve"]) == pytest.approx(training["val_mse"], rel=1e-5)
    assert {"versions", "machine", "command"} <= set(result["environment"])
    assert len(result["shown"]["x"]) == len(result["shown"]["true"]) == 8
    for block in result["attention"]:
        for kind in ("features", "positions", "velocities"):
            assert [sum(row) for row in block[kind]] == pytest.approx([1.0] * 10, rel=1e-4)
    assert "audit" not in result
    assert not (tmp_path / "runs" / result["name"] / "checkpoints").exists()
    assert (tmp_path / "runs" / result["name"] / "model").exists()


def test_the_rate_is_the_one_whose_trial_was_best(carried_out, tmp_path):
    found = carried_out(Experiment(Data(), "linear"))
    trials = [read_result(tmp_path, t.name) for t in Experiment(Data(), "linear").trials(SCALE)]
    best = min(trials, key=lambda trial: trial["training"]["val_mse"])
    assert found["rate"] == best["rate"] == 1e-2
    assert "test" not in best  # trials never see the test


def test_a_trial_that_diverges_is_not_chosen(carried_out, tmp_path):
    # A batch of far away targets and no step skipped: 1e9 goes wrong at once.
    scale = dataclasses.replace(
        SCALE,
        rates=(1e9, 1e-3),
        search={"steps": 4},
        budget=({"steps": 6, "clip": None, "skip": 0},) * 2,
    )
    experiment = Experiment(Data(), "linear")
    result = carried_out(experiment, scale)
    diverged = read_result(tmp_path, experiment.trials(scale)[0].name)
    assert diverged["training"]["diverged"]
    assert [result["rate"]] == rates(experiment, scale, tmp_path) == [1e-3]


def test_a_training_that_diverges_at_the_best_rate_begins_again_at_the_next(
    carried_out, monkeypatch, tmp_path
):
    experiment = Experiment(Data(), "linear")
    real = trained.train

    def wild(config, folder, **how):
        if folder.name == experiment.name:  # the first try of the training itself
            folder.mkdir(parents=True)
            (folder / "diverged.json").write_text("{}")
            raise InputError("training: the loss is nan.")
        return real(config, folder, **how)

    monkeypatch.setattr(trained, "train", wild)
    result = carried_out(experiment)
    best, second = rates(experiment, SCALE, tmp_path)
    assert result["training"]["diverged_at"] == [best]
    assert result["rate"] == result["settings"]["training"]["lr"] == second
    assert checked_result(tmp_path, experiment, SCALE) == result
    assert (tmp_path / "runs" / f"{experiment.name}--then{second:g}" / "model").exists()


def test_a_training_that_diverges_is_a_result_and_one_without_a_rate_is_not_tried(
    carried_out, tmp_path
):
    wild = {"steps": 6, "clip": None, "skip": 0, "lr": 1e9, "schedule": "constant", "warmup": 0.0}
    scale = dataclasses.replace(SCALE, rates=(1e9,), search={"steps": 4}, budget=(wild, wild))
    experiment = Experiment(Data(), "linear", rate=1e9)
    result = carried_out(experiment, scale)
    assert result["training"] == {"diverged": True, "diverged_at": []}
    assert checked_result(tmp_path, experiment, scale) == result
    assert "test" not in result
    with pytest.raises(InputError, match="diverged at every learning rate"):
        carried_out(Experiment(Data(), "linear"), scale)


def test_noisy_models_are_judged_by_noisy_and_by_clean_targets(carried_out):
    result = carried_out(Experiment(Data(noisy=True), "egnn"))
    noisy = result["test"]["last_frame"]["velocity_mse"]["mean"]
    clean = result["clean"]["last_frame"]["velocity_mse"]["mean"]
    assert noisy == pytest.approx(clean + 0.5, abs=0.2)  # the noise of the target itself
    assert set(result["clean"]) == {"model", *TRIVIAL_FORECASTS}


def test_what_has_nothing_to_train_is_tested_as_it_is_built(carried_out):
    result = carried_out(Experiment(Data(), "no-spatial"))
    assert result["rate"] is None
    assert "training" not in result
    assert result["test"]["position_mse"]["mean"] > 0


def test_the_audit_labels_its_results_and_states_the_bound(carried_out):
    result = carried_out(Experiment(Data(zero=True), "mlp"))
    assert result["audit"] == "zero targets"
    assert "AUDIT" in result["test"]["task"]
    assert result["centroid_variance"] == pytest.approx(0.2, abs=0.15)  # of 8 windows
    assert all(c == 0 for window in result["shown"]["true"] for x in window for c in x)


def test_a_result_of_other_settings_is_refused_and_a_broken_one_named(carried_out, tmp_path):
    experiment = Experiment(Data(), "linear")
    carried_out(experiment)
    checked_result(tmp_path, experiment, SCALE)
    other = dataclasses.replace(SCALE, budget=({"steps": 7}, {"steps": 7}))
    with pytest.raises(InputError, match=r"linear--seed0.json: was made with other settings"):
        checked_result(tmp_path, experiment, other)
    for broken in ("{", "null", "7"):
        result_path(tmp_path, experiment.name).write_text(broken)
        with pytest.raises(InputError, match=r"is no result .* delete it to make it again"):
            checked_result(tmp_path, experiment, SCALE)


def test_a_result_at_a_rate_that_its_trials_did_not_choose_is_made_again(carried_out, tmp_path):
    experiment = Experiment(Data(), "linear")
    before = carried_out(experiment)
    trial = result_path(tmp_path, experiment.trials(SCALE)[0].name)
    better = json.loads(trial.read_text())
    better["training"]["val_mse"] = 0.0
    trial.write_text(json.dumps(better))
    assert checked_result(tmp_path, experiment, SCALE) == before  # (shown, and marked)
    assert PaperJob(experiment, SCALE).result(tmp_path) is None
    again = carried_out(experiment)
    assert again["rate"] == better["rate"] != before["rate"]
    assert final_result(tmp_path, experiment, SCALE) == again


def test_trials_that_were_missing_may_confirm_a_result(carried_out, tmp_path):
    """It was made before there were trials on its task, at the rate that they choose."""
    experiment = Experiment(Data(), "linear")
    before = carried_out(experiment)
    for trial in experiment.trials(SCALE):
        result_path(tmp_path, trial.name).unlink()
    assert PaperJob(experiment, SCALE).result(tmp_path) is None
    assert carried_out(experiment) == before


def test_a_training_that_came_out_at_a_given_rate_is_not_repeated(carried_out, tmp_path):
    before = carried_out(Experiment(Data(), "linear"))
    given = Experiment(Data(), "linear", rate=before["rate"])
    assert PaperJob(given, SCALE).result(tmp_path) == before
    (other,) = set(SCALE.rates) - {before["rate"]}
    assert PaperJob(Experiment(Data(), "linear", rate=other), SCALE).result(tmp_path) is None
