"""Budgets: the shares of search and seeds add up, and validation takes a small part."""

import pytest

from spacetime_en import InputError, build_model
from spacetime_en.compare.budget import FEWEST_STEPS, TRIALS, ModelBudget, Pace, measure_pace
from spacetime_en.runs.training import Divergence
from spacetime_en.training.settings import TrainingSettings, seconds

SETTINGS = TrainingSettings(epochs=7, batch_size=16)


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_shares_of_all_trainings_are_the_budget(seeds):
    budget, pace = ModelBudget("5m", seeds), Pace(setup=1.0, step=0.01, validation=0.5, spent=4.0)
    trial, seed = budget.trial(SETTINGS, pace), budget.seed(SETTINGS, pace)
    overhead = pace.setup + pace.validation + pace.step / 2
    each = [*[trial] * TRIALS, *[seed] * seeds]
    total = sum(seconds(s.max_time) + overhead for s in each) + pace.spent
    assert total == pytest.approx(300, rel=1e-3)
    assert (seed.epochs, seed.steps) == (None, None)


@pytest.mark.parametrize("validation", [1e-4, 0.1, 2.0])
def test_validations_take_a_small_share_and_there_is_one(validation):
    pace = Pace(0.0, 0.01, validation, 0.0)
    training = ModelBudget("1m", 3).seed(SETTINGS, pace)
    steps = seconds(training.max_time) / pace.step
    count = steps / training.validate_every
    assert 0.4 < count <= 21  # (there is always one more, at the end)
    assert count * validation <= max(0.12 * seconds(training.max_time), 1.1 * validation)


def test_a_slow_model_tries_fewer_rates_or_none_and_its_seeds_get_the_time():
    slow, slower = Pace(0.0, 0.1, 0.5, 0.0), Pace(0.0, 0.5, 0.5, 0.0)
    budget = ModelBudget("30s", 3)
    assert (budget.trials(slow), budget.trials(slower)) == (3, 0)
    assert seconds(budget.trial(SETTINGS, slow).max_time) == pytest.approx(2.45)
    assert seconds(budget.seed(SETTINGS, slower).max_time) == pytest.approx(9.25)


def test_a_budget_in_steps_depends_on_no_clock():
    budget = ModelBudget("600 steps", 2)
    trial, seed = budget.trial(SETTINGS, None), budget.seed(SETTINGS, None)
    assert (trial.steps, seed.steps) == (45, 210)
    assert (trial.validate_every, seed.validate_every) == (4, 21)
    assert (seed.max_time, seed.epochs) == (None, None)


def test_what_diverged_is_taken_from_the_budget_of_the_next_try():
    steps = ModelBudget("600 steps", 2)
    training = steps.seed(SETTINGS, None)
    assert steps.rest(training, None, Divergence(step=200)).steps == 10
    assert steps.rest(training, None, Divergence(step=209)) is None
    pace = Pace(setup=1.0, step=0.5, validation=0.1, spent=0.0)
    budget = ModelBudget("1m", 1)
    training = budget.seed(SETTINGS, pace)
    again = budget.rest(training, pace, Divergence(seconds=20.0))
    # (A second try is set up as the first was, and the first made one more step, which diverged.)
    assert seconds(training.max_time) - seconds(again.max_time) == pytest.approx(20 + 1 + 0.5)
    assert again.validate_every == training.validate_every
    most = seconds(training.max_time)
    assert budget.rest(training, pace, Divergence(seconds=most - 2)) is None


def test_a_budget_too_small_for_a_validation_is_refused_in_one_sentence():
    pace = Pace(0.1, 0.2, 5.0, 1.0)
    with pytest.raises(InputError, match=r"budget: '10s' is too small: .* each take 18 s here"):
        ModelBudget("10s", 3).seed(SETTINGS, pace)


def test_what_a_refusal_says_is_enough_is_enough():
    """With many seeds, a search for the rate would leave them too little."""
    pace = Pace(setup=5.0, step=0.1, validation=1.0, spent=1.0)
    with pytest.raises(InputError, match="each take 64 s here"):
        ModelBudget("63s", 10).seed(SETTINGS, pace)
    enough = ModelBudget("64s", 10)
    assert enough.trials(pace) == 0
    assert seconds(enough.seed(SETTINGS, pace).max_time) >= FEWEST_STEPS * pace.step


@pytest.mark.parametrize(("seeds", "needed"), [(1, 27), (3, 27), (20, 58)])
def test_a_budget_in_steps_is_enough_for_each_training_or_refused(seeds, needed):
    budget = ModelBudget(f"{needed} steps", seeds)
    for training in (budget.trial(SETTINGS, None), budget.seed(SETTINGS, None)):
        assert training.steps >= FEWEST_STEPS
    with pytest.raises(InputError, match=f"too small: .* each take {needed} steps; give more"):
        ModelBudget(f"{needed - 1} steps", seeds)


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5 miles", "0s", "steps", "1,000 steps"])
def test_what_is_no_budget_is_refused(text):
    sentence = "budget: expected a time such as 90s, 10m or 1h30m, or steps, such as '600 steps'"
    with pytest.raises(InputError, match=sentence):
        ModelBudget(text, 3)


@pytest.mark.parametrize("preset", ["set-2", "mlp"])
def test_the_pace_is_measured_and_leaves_the_model_without_gradients(tiny_task, preset):
    graph, _ = tiny_task.train[:1]
    model = build_model(preset, like=graph)
    pace = measure_pace(model, tiny_task, SETTINGS)
    assert 0 < pace.step <= pace.spent
    assert pace.validation > 0
    assert all(p.grad is None for p in model.parameters())


def test_the_pace_is_measured_in_the_precision_of_the_model(tiny_task):
    graph, _ = tiny_task.train[:1]
    model = build_model("mlp", like=graph).double()
    assert measure_pace(model, tiny_task, SETTINGS).step > 0
