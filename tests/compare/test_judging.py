"""Judging: the same errors as `evaluate`, for every window."""

import pytest
import torch

from spacetime_en import Forecaster, InputError, build_model, evaluate
from spacetime_en.compare.budget import ModelBudget
from spacetime_en.compare.candidates import Candidate
from spacetime_en.compare.judging import Judgement, judge, measure_symmetry
from spacetime_en.compare.models import Question
from spacetime_en.compare.results import write_result
from spacetime_en.data.compatibility import facts_of
from spacetime_en.graph import Forecast
from tests.compare.inline import TASK


def test_the_errors_are_those_of_evaluate(tiny_task):
    graph, _ = tiny_task.train[:1]
    torch.manual_seed(0)
    model = build_model("egnn", like=graph, hidden=8)
    judged, evaluation = judge(model, tiny_task), evaluate(model, tiny_task)
    assert judged["position"] == evaluation.errors["model"].position.tolist()
    assert judged["velocity"] == evaluation.errors["model"].velocity.tolist()
    for key in ("position_mse", "velocity_mse", "parameters", "calibration"):
        assert judged[key] == evaluation.report[key]
    assert max(measure_symmetry(model, tiny_task).values()) < 1e-4
    assert judged["forecasts_per_second"] > 0
    assert "ade" not in judged  # one target time


class Lost(Forecaster):
    """Forecasts only NaN and infinity."""

    def forecast(self, graph):
        x = graph.x[:, -1:] * torch.nan
        return Forecast(x, x)

    @property
    def symmetries(self):
        return build_model("last-frame").symmetries


class Plain(Forecaster):
    """Promises no symmetries."""

    def forecast(self, graph):
        return build_model("last-frame").forecast(graph)


def test_a_model_that_promises_no_symmetries_is_judged_as_others_are(tiny_task):
    plain = Plain()
    plain.trained_on = facts_of(tiny_task)
    here, there = (judge(model, tiny_task) for model in (plain, build_model("last-frame")))
    assert here["position"] == pytest.approx(there["position"], rel=1e-5)
    assert measure_symmetry(plain, tiny_task)["translation"] < 1e-4


def test_forecasts_that_are_no_numbers_are_refused(tiny_task):
    with pytest.raises(InputError, match="NaN or infinite"):
        judge(Lost(), tiny_task)


def test_a_seed_that_was_trained_anew_is_judged_anew(monkeypatch, cache, tmp_path):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    question = Question(TASK, ModelBudget("30 steps", 1), token="token")
    judgement = Judgement(question, Candidate("straight-line", "trivial", 0), (0,), ())
    (fit,) = judgement.fits()
    made = fit.carry_out(tmp_path, lambda *at: None)
    judgement.carry_out(tmp_path, lambda *at: None)
    assert judgement.result(tmp_path) is not None
    write_result(tmp_path, fit.name, made | {"training": made["training"] | {"val_mse": 7.0}})
    assert judgement.result(tmp_path) is None
