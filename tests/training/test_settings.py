import math

import pytest

from spacetime_en import PRESETS, InputError
from spacetime_en.data import TASKS
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.nn.presets import arguments_of
from spacetime_en.training import PAPER, TrainingSettings
from spacetime_en.training.settings import (
    PAPER_TASKS,
    PRESET_SETTINGS,
    Budget,
    preset_defaults,
    seconds,
)


def budget(batches=10, **settings):
    return Budget.from_settings(TrainingSettings(**settings), batches)


def test_times_as_people_write_them():
    assert seconds("90s") == 90
    assert seconds("1h30m") == 5400
    assert seconds("1.5h") == 5400
    assert seconds("2d") == 172800
    assert seconds("01:02:03") == 3723
    for wrong in ("", "soon", "10", "0s", "1m2h", "-5s"):
        with pytest.raises(InputError, match="max_time: expected a time such as"):
            seconds(wrong)


def test_the_budget_that_ends_first_counts():
    both = budget(epochs=3, steps=20, max_time="100s")
    assert both.steps == 20
    assert both.used(10, 0) == 0.5
    assert both.used(10, 80) == 0.8
    assert both.used(20, 0) == 1
    assert budget(epochs=3).steps == 30
    assert budget().steps == 1000
    assert budget(max_time="10s").steps is None


def test_the_learning_rate_rises_then_follows_a_cosine_whichever_budget_is_set():
    for b, at in (
        (budget(steps=100, warmup=0.2, schedule="cosine"), lambda share: (100 * share, 0)),
        (budget(max_time="50s", warmup=0.2, schedule="cosine"), lambda share: (7, 50 * share)),
    ):
        factor = [b.lr_factor(b.used(*at(share))) for share in (0, 0.1, 0.2, 0.6, 1.0)]
        assert factor == pytest.approx([0, 0.5, 1, 0.5, 0], abs=1e-9)
    flat = budget(steps=100)
    assert {flat.lr_factor(flat.used(step, 0)) for step in range(101)} == {1.0}


def test_every_trainable_preset_has_the_papers_settings():
    trained = {p for p in PRESETS if PRESETS[p].model.__init__ is not LastFrame.__init__}
    assert set(PAPER) == trained - {
        "set-2",
        "set-flow",
        "transformer",
        "tfn",
        "se3-transformer",
        "hnn-pairs",
        "hnn",
        "lnn",
        "segno",
        "estag",
        "body",
        "ridge",
        "ridge-shared",
        "kernel",
    }
    assert PAPER["set"] == {"lr": 4.45e-5, "batch_size": 100}
    assert PAPER["linear"]["weight_decay"] == 1e-6
    for own in PRESET_SETTINGS.values():
        TrainingSettings(**own)


def test_the_papers_settings_are_the_defaults_on_its_own_tasks_alone():
    assert set(PAPER_TASKS) <= set(TASKS)
    short = {"lr": 1e-3, "batch_size": 100, "schedule": "cosine", "warmup": 0.05, "skip": 20}
    for preset in PAPER:
        dropout = {"dropout": 0.0} if "dropout" in arguments_of(PRESETS[preset].model) else {}
        batch = {"batch_size": 32} if preset in ("egnn", "lstm") else {}
        ours, papers = (short | batch, dropout), (PAPER[preset], {})
        for task in (None, *TASKS):
            by_task = papers if task in PAPER_TASKS else ours
            assert preset_defaults(preset, task) == by_task
            assert preset_defaults(preset, task, "paper") == papers
            assert preset_defaults(preset, task, "ours") == ours
    for preset in (*(set(PRESETS) - set(PAPER)), "package.Own", None):
        own = (PRESET_SETTINGS.get(preset, {}), {})
        for which in (None, "paper", "ours"):
            assert preset_defaults(preset, "charged", which) == own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.0),
        ("lr", math.nan),
        ("batch_size", 0),
        ("epochs", -1),
        ("ema", 1.0),
        ("warmup", 1.5),
        ("weight_decay", -1e-3),
        ("seed", -1),
        ("clip", 0.0),
    ],
)
def test_impossible_settings_are_named(name, value):
    with pytest.raises(InputError, match=f"^{name}: expected"):
        TrainingSettings(**{name: value})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": "linear"}, "schedule: expected 'constant' or 'cosine', found 'linear'"),
        ({"clock": "sun"}, "clock: expected 'wall' or 'cpu', found 'sun'"),
        ({"optimiser": "sgd"}, "optimiser: expected 'adam' or 'adamw', found 'sgd'"),
        ({"accelerator": "abacus"}, "accelerator: expected 'auto' or 'cpu' or"),
        ({"lr": -1.0}, "lr: expected a positive number, found -1.0"),
        ({"lr": math.nan}, "lr: expected a positive number, found nan"),
        ({"lr": "1e-3"}, "lr: expected a positive number, found '1e-3'"),
        ({"batch_size": 0}, "batch_size: expected a positive whole number or None, found 0"),
        ({"batch_size": True}, "batch_size: expected a positive whole number or None, found True"),
        ({"epochs": -1}, "epochs: expected a positive whole number or None, found -1"),
        ({"steps": 10**20}, "steps: expected a positive whole number or None, at most 9007"),
        ({"clip": 0}, "clip: expected a positive number or None, found 0"),
        ({"seed": -1}, "seed: expected a whole number, at least 0, found -1"),
        ({"warmup": 1.0}, "warmup: expected a number, at least 0, below 1, found 1.0"),
        ({"weight_decay": math.inf}, "weight_decay: expected a finite number, found inf"),
        ({"max_time": 90}, "max_time: expected text or None, found 90"),
        ({"max_time": "9" * 400 + "d"}, "max_time: expected a time such as"),
    ],
)
def test_settings_are_what_their_types_say(settings, words):
    with pytest.raises(InputError, match=words):
        TrainingSettings(**settings)


@pytest.mark.parametrize(("nodes", "size"), [(1, 100), (5, 100), (31, 16), (12.4, 40), (9_999, 1)])
def test_a_batch_whose_size_is_not_given_has_about_500_nodes(nodes, size):
    assert TrainingSettings(batch_size=None).for_nodes(nodes).batch_size == size
    assert TrainingSettings(batch_size=7).for_nodes(nodes).batch_size == 7
