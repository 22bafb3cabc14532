"""Scenes: forecasts are interpolated between the times that they were made for."""

import numpy as np

from spacetime_en.report.scene import Scene, html_page

X = np.arange(4.0)[:, None, None] * np.ones((4, 2, 3))  # both nodes move along the diagonal
SCENE = Scene("two nodes", np.arange(4), 1, X, {"late": {2: X[2], 3: X[2]}})


def test_a_forecast_begins_at_the_last_observed_frame_and_ends_at_its_last_time():
    assert SCENE.forecast_at("late", 1) is None
    assert np.array_equal(SCENE.forecast_at("late", 2), X[2])
    assert np.array_equal(SCENE.forecast_at("late", 3), X[2])
    assert SCENE.forecast_at("late", 4) is None


def test_between_two_times_it_is_a_straight_line():
    scene = Scene("one", np.arange(4), 1, X, {"late": {3: X[3]}})
    assert np.allclose(scene.forecast_at("late", 2), (X[1] + X[3]) / 2)


def test_as_json_it_has_five_significant_digits_of_its_extent():
    scene = Scene("fine", np.arange(4), 1, X / 3, {})
    assert scene.to_json()["x"][1][0] == [0.3333] * 3


def test_a_page_holds_data_that_cannot_end_its_script():
    text = html_page("<script>/*DATA*/</script>", "", "", {"title": "</script>"})
    assert text.count("</script>") == 1
