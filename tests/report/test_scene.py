"""Scenes: what is shown at a step is what had happened, and what was forecast from or for it."""

import json

import numpy as np
import pytest

from spacetime_en.report.scene import Scene, html_page

X = np.arange(4.0)[:, None, None] * np.ones((4, 2, 3))  # both nodes move along the diagonal
STEPS = np.arange(4)
ONE = Scene("two nodes", STEPS, X, np.array([1, 2]), {"late": {1: X[[2, 2]]}})
PATHS = Scene("paths", STEPS, X, np.array([1, 2]), {"m": {0: X[[1, 1]], 1: X[[2, 2]]}}, tail=1)


def test_a_forecast_begins_at_the_last_observed_frame_and_ends_at_its_last_time():
    assert ONE.forecast_at("late", 1) is None
    assert np.array_equal(ONE.forecast_at("late", 2), X[[1, 2]])
    assert np.array_equal(ONE.forecast_at("late", 3), X[[1, 2, 2]])
    assert ONE.forecast_at("late", 4) is None
    assert [ONE.when(step) for step in (1, 2, 3)] == ["observed", "1 step ahead", "2 steps ahead"]


def test_between_two_times_it_is_a_straight_line():
    scene = Scene("one", STEPS, X, np.array([2]), {"late": {1: X[3:]}})
    assert np.allclose(scene.forecast_at("late", 2)[-1], (X[1] + X[3]) / 2)


def test_times_that_a_model_does_not_know_are_passed_over():
    unknown = np.stack([np.full((2, 3), np.nan), X[3]])
    scene = Scene("one", STEPS, X, np.array([1, 2]), {"late": {1: unknown}})
    assert np.allclose(scene.forecast_at("late", 2)[-1], (X[1] + X[3]) / 2)
    early = Scene("one", STEPS, X, np.array([1, 2]), {"early": {1: unknown[::-1]}})
    assert early.forecast_at("early", 3) is None


def test_paths_from_many_steps_are_shown_from_the_present_on():
    assert PATHS.moving
    assert PATHS.frames.tolist() == [0, 1]
    assert np.array_equal(PATHS.forecast_at("m", 1), X[[1, 2, 2]])
    assert np.array_equal(PATHS.past(2), X[1:3])  # a tail of one step
    assert np.array_equal(PATHS.future(1), X[1:4])
    assert PATHS.forecast_at("m", 2) is None


def test_single_times_forecast_from_many_steps_are_shown_when_they_come():
    scene = Scene("one", STEPS, X, np.array([2]), {"m": {0: X[:1], 1: X[1:2]}})
    assert scene.frames.tolist() == [0, 1, 2, 3]
    assert np.array_equal(scene.forecast_at("m", 3), X[1:2])
    assert scene.forecast_at("m", 1) is None


def test_limits_hold_all_that_is_true_and_forecasts_that_are_near():
    forecasts = {"far": {1: np.full((1, 2, 3), 1e6)}, "near": {1: np.full((1, 2, 3), -1.0)}}
    low, high = Scene("one", STEPS, X, np.array([1]), forecasts).limits()
    assert low == pytest.approx([-1.0] * 3)
    assert high == pytest.approx([4.5] * 3)


def test_as_json_it_has_five_significant_digits_of_its_extent():
    scene = Scene("fine", STEPS, X / 3, np.array([1]), {})
    assert scene.to_json()["x"][1][0] == [0.3333] * 3


def test_as_json_a_node_that_is_not_there_is_null():
    x = X.copy()
    x[2, 1] = np.nan
    scene = Scene("gap", STEPS, x, np.array([1]), {"m": {2: x[2:3]}}, dims=2)
    shown = json.loads(json.dumps(scene.to_json(), allow_nan=False))
    assert shown["x"][2] == [[2.0] * 3, None]
    assert shown["forecasts"]["m"]["2"] == [[[2.0] * 3, None]]


def test_a_page_holds_data_that_cannot_end_its_script():
    text = html_page("<script>/*DATA*/</script>", "", "", {"title": "</script>"})
    assert text.count("</script>") == 1


def test_particles_in_space_are_turned_to_where_their_motion_covers_most():
    x = np.random.default_rng(0).standard_normal((9, 4, 3)) * [1, 0.01, 5]  # thin along y
    scene = Scene("flat", np.arange(9), x, np.array([1]), {"m": {7: x[8:] + 1}})
    turned = scene.from_the_side()
    assert turned.dims == 2
    assert np.allclose(np.linalg.norm(x[:, 0] - x[:, 1], axis=-1),
                       np.linalg.norm(turned.x[:, 0] - turned.x[:, 1], axis=-1))  # fmt: skip
    assert turned.x.std((0, 1)).argsort().tolist() == [2, 1, 0]
    error = turned.forecasts["m"][7] - turned.x[8:]
    assert np.allclose(np.linalg.norm(error, axis=-1), np.sqrt(3))
    body = Scene("body", np.arange(9), x, np.array([1]), {}, bones=[(0, 1)])
    assert body.from_the_side() is body
