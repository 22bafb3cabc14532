"""Animations: they show what was forecast, and files are complete."""

import dataclasses
import json
import os
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from spacetime_en import InputError, build_model
from spacetime_en.data import Task, Trajectories, Windows
from spacetime_en.nn.models.trivial import LastFrame, StraightLine
from spacetime_en.report.animation import animate, make_scene, window_scene

MODELS = {"last frame": LastFrame(), "straight line": StraightLine()}


@pytest.fixture
def recording():
    """One run of a body of three joints, its y axis up, with bones."""
    x = np.random.default_rng(0).standard_normal((400, 3, 3)).cumsum(0)
    meta = {"edges": [(1, 0), (2, 1)], "up": [0.0, 1.0, 0.0]}
    data = Trajectories.from_arrays(x, times=np.arange(400) / 60, meta=meta)
    return Task.from_trajectories(data, length=3, stride=1, target_steps=2)


def test_a_simulated_window_has_its_past_its_true_way_and_its_forecasts(tiny_task):
    scene = make_scene(MODELS, tiny_task, window=3, frames=30)
    graph, target = tiny_task.test[3]
    steps = scene.steps.tolist()
    assert steps[:3] == [0, 10, 20]
    assert (scene.observed, steps[-1]) == (20, 120)
    assert len(steps) == 30
    for k in range(3):
        assert np.allclose(scene.x[k], graph.x[0, k], atol=1e-6)
    assert np.allclose(scene.x[-1], target.x[0, 0], atol=1e-6)  # simulated again, the same way
    for name, model in MODELS.items():
        assert np.allclose(scene.forecasts[name][20], model(graph).x[0], atol=1e-6)
    assert sorted(set(scene.charge)) == [-1, 1]


@pytest.mark.parametrize(
    "lie",
    [
        {"seed": 7},
        {"seed": [1]},
        {"num": None},
        {"num": 1},
        {"scheme": "x"},
        {"system": "gravity"},
        {"system": "springs"},
    ],
)
def test_data_that_were_not_simulated_as_they_say_show_their_own_frames(tiny_task, lie):
    t = tiny_task.test.trajectories
    data = dataclasses.replace(t, meta={**t.meta, **lie}, checksums=())
    task = Task.from_trajectories(data, length=3, target_steps=10)
    scene = make_scene(MODELS, task, window=3, frames=30)
    assert set(scene.steps) <= set(t.steps)


def test_a_simulation_that_would_take_for_ever_is_not_made_again(tiny_task):
    t = tiny_task.test.trajectories
    data = dataclasses.replace(t, steps=t.steps * 10**12, checksums=())
    task = Task.from_trajectories(data, length=3, target_steps=10)
    assert set(make_scene(MODELS, task, window=3, frames=30).steps) <= set(data.steps)


def test_forecasts_are_straight_lines_from_the_last_frame_and_none_before(tiny_task):
    scene = make_scene(MODELS, tiny_task, window=0, frames=30)
    name = "straight line"
    assert scene.forecast_at(name, 20) is None
    half = scene.forecast_at(name, 70)[-1]
    start, goal = scene.x[2], scene.forecasts[name][20][0]
    assert np.allclose(half, (start + goal) / 2, atol=1e-6)
    assert np.allclose(scene.forecast_at(name, 120)[-1], goal)
    assert scene.forecast_at(name, 121) is None


def test_a_recording_shows_for_every_frame_what_was_forecast_for_it(recording):
    scene = make_scene(MODELS, recording, window=0, frames=500)
    assert scene.bones == [(1, 0), (2, 1)]
    assert scene.follow
    x = np.asarray(recording.test.trajectories.x[0])
    # From the first target of the test to the last: split by time, the rest was trained on.
    first = int(recording.test.cut.frames().min())
    assert first > 300
    assert scene.steps.tolist() == list(range(first + 4, 400))
    up = np.stack([x[..., 0], -x[..., 2], x[..., 1]], axis=-1)  # z up
    assert np.allclose(scene.x, up[first + 4 :])
    last = scene.forecasts["last frame"]
    assert all(np.allclose(last[k - 2], up[k - 2], atol=1e-5) for k in scene.steps.tolist())
    few = make_scene(MODELS, recording, window=0, frames=20)
    assert 10 <= len(few.steps) <= 20


@pytest.mark.parametrize("kind", ["recording", "window"])
def test_a_gif_has_every_frame_and_an_html_page_needs_nothing(kind, recording, tiny_task, tmp_path):
    task = recording if kind == "recording" else tiny_task
    scene = make_scene(MODELS, task, window=0, frames=12)
    drawn = []
    path = animate(scene, tmp_path / "new" / "a.gif", fps=10, progress=drawn.append)
    with Image.open(path) as film:
        assert film.n_frames == len(scene.steps) == len(drawn)
    text = animate(scene, tmp_path / "a.html").read_text()
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    (shown,) = json.loads(data)["scenes"]
    assert np.allclose(shown["x"], scene.x, atol=1e-4 * np.ptp(scene.x))
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == ["a.gif", "a.html"]


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")
def test_a_film_as_mp4(tiny_task, tmp_path):
    scene = make_scene(MODELS, tiny_task, window=0, frames=6)
    assert animate(scene, tmp_path / "a.mp4").stat().st_size > 1000


def test_names_are_shown_as_they_are(tiny_task, tmp_path):
    """Neither formulas nor elements of a page are read in them."""
    name = "$x_{ </script><script>alert(1)</script><!--<script> [/x] é \x01"
    scene = make_scene({name: LastFrame()}, tiny_task, window=0, frames=4)
    scene = dataclasses.replace(scene, title=name)
    animate(scene, tmp_path / "a.gif")
    text = animate(scene, tmp_path / "a.html").read_text("utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text.replace("<!--SPACE-->", "")
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert json.loads(data)["title"] == name


def test_a_film_is_whole_or_not_there_and_never_overwrites(tiny_task, tmp_path, monkeypatch):
    scene = make_scene(MODELS, tiny_task, window=0, frames=4)
    (tmp_path / "mine.gif").write_text("mine")
    with pytest.raises(InputError, match=r"mine.gif: exists already"):
        animate(scene, tmp_path / "mine.gif")
    assert (tmp_path / "mine.gif").read_text() == "mine"
    with pytest.raises(KeyboardInterrupt):
        animate(scene, tmp_path / "a.gif", progress=stop)
    programs = tmp_path / "programs"
    programs.mkdir()
    ffmpeg = programs / "ffmpeg"
    ffmpeg.write_text("#!/bin/sh\necho a.mp4: No space left on device >&2\nexit 1\n")
    ffmpeg.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    with pytest.raises(InputError, match=r"a.mp4: ffmpeg could not .* No space left on device"):
        animate(scene, tmp_path / "a.mp4")
    assert sorted(os.listdir(tmp_path)) == ["mine.gif", "programs"]


def stop(done):
    raise KeyboardInterrupt


def test_flat_data_are_drawn_in_a_plane(tmp_path):
    x = np.random.default_rng(0).standard_normal((1, 60, 4, 2)).cumsum(1)
    task = Task.from_trajectories(Trajectories.from_arrays(x), length=3, stride=1, target_steps=1)
    scene = make_scene({"last frame": LastFrame()}, task, window=0, frames=8)
    assert scene.x.shape[1:] == (4, 3)
    assert scene.dims == 2
    assert not scene.x[..., 2].any()
    animate(scene, tmp_path / "a.gif")


def test_models_with_weights_are_asked_in_their_own_precision(tiny_task):
    model = build_model("egnn", like=tiny_task.train[:1][0], hidden=4, layers=1).to(torch.float64)
    assert make_scene({"egnn": model}, tiny_task, 0, 10).forecasts["egnn"][20].shape == (1, 5, 3)


@pytest.mark.parametrize(
    ("name", "fps", "sentence"),
    [
        ("a.avi", 20, r"ends in \.gif, \.mp4, \.html; or, .* \.png"),
        ("a.gif", 101, "fps: expected 1 to 100"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_drawn(
    tiny_task, tmp_path, name, fps, sentence
):
    scene = make_scene(MODELS, tiny_task, 0, 5)
    with pytest.raises(InputError, match=sentence):
        animate(scene, tmp_path / name, fps)
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_it_is_said(tiny_task, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="MP4 needs the program ffmpeg"):
        animate(make_scene(MODELS, tiny_task, 0, 5), tmp_path / "a.mp4")


def test_windows_are_counted_from_zero(tiny_task):
    with pytest.raises(InputError, match="expected one of the 12 test windows"):
        make_scene(MODELS, tiny_task, 12, 5)


def test_frames_are_at_most_as_many_as_asked_beside_the_observed_ones(tiny_task):
    with pytest.raises(InputError, match="frames: expected 1 to 100,000, found 100001"):
        make_scene(MODELS, tiny_task, 0, 100_001)
    x = np.random.default_rng(0).standard_normal((6, 60, 3, 3)).cumsum(1)
    sizes = {"length": 3, "stride": 1, "target_steps": 50, "counts": (2, 2, 2)}
    task = Task.from_trajectories(Trajectories.from_arrays(x), **sizes)
    assert len(make_scene(MODELS, task, 0, 5).steps) <= 3 + 1 + 5
    four = np.concatenate([x, x[..., :1]], axis=-1)
    four = Task.from_trajectories(Trajectories.from_arrays(four), **sizes)
    with pytest.raises(InputError, match="up to three dimensions"):
        make_scene(MODELS, four, 0, 5)


@pytest.mark.parametrize("up", [[0.0, 1.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
def test_whatever_is_up_is_drawn_up(up):
    x = np.random.default_rng(0).standard_normal((1, 60, 4, 3)).cumsum(1)
    data = Trajectories.from_arrays(x, meta={"up": up})
    scene = make_scene(
        MODELS, Task.from_trajectories(data, length=3, stride=1, target_steps=1), 0, 60
    )
    heights = scene.x[..., 2]
    goals = x[0, scene.steps] @ np.array(up) / np.linalg.norm(up)
    assert np.allclose(heights, goals)
    spans = (np.linalg.norm(y[:, 0] - y[:, 1], axis=-1) for y in (scene.x, x[0, scene.steps]))
    assert np.allclose(*spans)  # turned, not mirrored nor stretched


def test_in_a_box_truth_and_forecast_are_the_same_image():
    """Uniform motion: the straight line is exact, wherever nodes are stored."""
    v = np.random.default_rng(0).standard_normal((5, 3))
    path = 0.7 * np.arange(60)[:, None, None] * v
    data = Trajectories.from_arrays(path[None] % 4.0, box=np.array([4.0] * 3))
    task = Task.from_trajectories(data, length=3, stride=1, target_steps=2)
    scene = make_scene({"line": StraightLine()}, task, 0, 60)
    for step, x in scene.forecasts["line"].items():
        assert np.allclose(x[0], scene.at(step + 2), atol=1e-4)


def test_a_page_keeps_the_digits_of_small_units(recording, tmp_path):
    scene = make_scene(MODELS, recording, 0, 30)
    small = dataclasses.replace(scene, x=1e-6 * scene.x)
    kept = np.array(small.to_json()["x"])
    assert np.abs(kept - small.x).max() < 1e-4 * np.ptp(small.x)


# --- nodes that come and go -----------------------------------------------------------------------


@pytest.fixture
def crossing():
    """Thirty nodes, twenty frames each, that cross a scene in a slot out of ten; one has a gap."""
    x, ids = np.full((60, 10, 2), np.nan), np.full((60, 10), -1)
    for node in range(30):
        frames, slot = 20 * (node // 10) + np.arange(20), node % 10
        x[frames, slot] = np.stack([0.5 * np.arange(20.0), np.full(20, slot)], axis=-1)
        ids[frames, slot] = node
    x[5, 3] = np.nan
    return Trajectories.from_arrays(
        x, ids=ids, observed=np.isfinite(x).all(-1), meta={"length_unit": "m"}
    )


def as_task(windows):
    """What scenes read of a task, with the same windows for all; a real one refuses that."""
    task = object.__new__(Task)
    for name, value in {"name": "crossing", "test": windows, "problems": ()}.items():
        object.__setattr__(task, name, value)
    return task


def test_a_recording_shows_paths_from_every_frame_of_nodes_that_come_and_go(crossing):
    task = as_task(Windows(crossing, 4, 1, "1..3"))
    scene = make_scene(MODELS, task, window=0, frames=500)
    assert scene.x.shape == (60, 30, 3)  # each in a place of its own
    assert (
        np.isfinite(scene.x).all(-1).sum(0) == [19 if node == 3 else 20 for node in range(30)]
    ).all()
    assert (scene.dims, scene.unit, scene.tail, scene.ahead.tolist()) == (2, "m", 3, [1, 2, 3])
    for start, paths in scene.forecasts["straight line"].items():
        there = np.isfinite(paths).all(-1).all(0)
        assert (there == np.isfinite(scene.at(start)).all(-1)).all()
        before = np.isfinite(scene.at(start - 1)).all(-1)
        both = there & before
        assert np.allclose(paths[2, both], scene.at(start)[both] + [1.5, 0, 0], atol=1e-5)
    few = make_scene(MODELS, task, window=10, frames=12)
    assert few.steps[few.frames].tolist()[0] == 10 + 3
    assert len(few.frames) <= 12


def test_a_window_shows_its_own_nodes_until_they_leave(crossing):
    task = as_task(Windows(crossing, 4, 1, (1, 3)))
    (number,) = np.flatnonzero(task.test.locate()[1][:, 3] == 17)
    scene = window_scene(MODELS, task, int(number))
    assert scene.steps.tolist() == [14, 15, 16, 17, 18, 19, 20]
    assert scene.x.shape == (7, 10, 3)
    assert np.isfinite(scene.x[:6]).all()
    assert np.isnan(scene.x[6, :, :2]).all()  # others have their slots
    assert scene.forecasts["last frame"][17].shape == (2, 10, 3)


@pytest.mark.parametrize("ending", ["gif", "html"])
def test_paths_are_animated(crossing, ending, tmp_path):
    scene = make_scene(MODELS, as_task(Windows(crossing, 4, 1, "1..3")), window=0, frames=4)
    assert animate(scene, tmp_path / f"a.{ending}").stat().st_size > 1000
