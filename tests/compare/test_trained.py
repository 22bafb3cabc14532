"""Training with several rates: divergence is recorded, and not repeated."""

import dataclasses
import json

import pytest

from spacetime_en.compare import trained
from spacetime_en.compare.trained import train_first_that_converges
from spacetime_en.runs.config import Config
from spacetime_en.training.settings import TrainingSettings
from tests.compare.inline import TASK

WILD, CALM = 1e9, 1e-3


@pytest.fixture
def configs(monkeypatch, cache):
    """Settings by rate, the first two of which diverge within a few of their twelve steps."""
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    training = TrainingSettings(
        batch_size=16, steps=12, clip=None, skip=0, schedule="constant", warmup=0.0
    )
    config = Config("linear", {}, TASK, training)
    return [
        dataclasses.replace(config, training=dataclasses.replace(training, lr=rate))
        for rate in (WILD, 2 * WILD, CALM)
    ]


def what_is_left(settings, diverged):
    steps = settings.steps - diverged.step
    return dataclasses.replace(settings, steps=steps) if steps > 1 else None


def nothing(*how):
    pass


def test_all_tries_together_have_one_budget(configs, tiny_task, tmp_path):
    place = tmp_path / "runs" / "x"
    run, config, training = train_first_that_converges(
        configs, place, nothing, tiny_task, what_is_left
    )
    assert training["diverged_at"] == [WILD, 2 * WILD]
    lost = [json.loads(p.read_text()) for p in place.parent.glob("*/diverged.json")]
    assert all(entry["step"] > 0 and entry["seconds"] > 0 for entry in lost)
    assert training["steps"] + sum(entry["step"] for entry in lost) == 12
    assert training["diverged_seconds"] == sum(entry["seconds"] for entry in lost)
    assert (config.training.lr, config.training.steps) == (CALM, training["steps"])
    assert run.config.training.lr == CALM


def test_without_a_rest_each_try_has_its_own(configs, tiny_task, tmp_path):
    _, _, training = train_first_that_converges(configs, tmp_path / "x", nothing, tiny_task)
    assert (training["diverged_at"], training["steps"]) == ([WILD, 2 * WILD], 12)


def test_a_training_that_is_known_to_diverge_is_not_repeated(
    configs, tiny_task, tmp_path, monkeypatch
):
    real, begun = trained.train, []

    def noted(config, folder, **how):
        begun.append(config.training.lr)
        return real(config, folder, **how)

    monkeypatch.setattr(trained, "train", noted)
    made = [
        train_first_that_converges(configs[:number], tmp_path / "x", nothing, tiny_task)[2]
        for number in (1, 1, 3)
    ]
    assert made[0] == made[1] == {"diverged": True, "diverged_at": []}
    assert begun == [WILD, 2 * WILD, CALM]


def test_when_too_little_is_left_no_other_rate_is_tried(configs, tiny_task, tmp_path):
    run, config, training = train_first_that_converges(
        configs, tmp_path / "x", nothing, tiny_task, lambda *how: None
    )
    assert run is None
    assert config.training.lr == WILD
    assert training == {"diverged": True, "diverged_at": []}
