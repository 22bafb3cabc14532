"""Pictures of scenes: in the scene's aspect ratio, with nothing left out."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from spacetime_en import Forecast, SpacetimeGraph
from spacetime_en.data import Task, Trajectories
from spacetime_en.nn.models.trivial import LastFrame
from spacetime_en.report.drawing import (
    add_legend,
    draw_frame,
    draw_still,
    figure_for,
    plot_forecasts,
    plot_scene,
    plot_trajectories,
)
from spacetime_en.report.scene import Scene, scenes_of


def walkers(width=30.0, height=4.0, nodes=6, frames=12):
    """Nodes that cross a scene of this size; the last one is not there in the first frames."""
    rng = np.random.default_rng(0)
    x = np.zeros((frames, nodes, 3))
    x[..., 0] = np.linspace(0, width, frames)[:, None]
    x[..., 1] = np.linspace(0, height, nodes) + 0.01 * rng.standard_normal((frames, nodes))
    x[:8, -1] = np.nan
    ahead = np.arange(1, 5)
    paths = {7: x[7] + 0.1 * ahead[:, None, None]}
    return Scene("walkers", np.arange(frames), x, ahead, {"model": paths}, dims=2, unit="m")


@pytest.mark.parametrize("size", [(30.0, 4.0), (4.0, 30.0), (5.0, 5.0), (1e-6, 0.0)])
def test_a_scene_from_above_fills_its_picture(size):
    scene = walkers(*size)
    figure, axes = figure_for(scene)
    draw_still(axes, scene)
    add_legend(figure, ["model"])
    figure.draw_without_rendering()
    wide, high = figure.get_size_inches()
    assert 3 < wide <= 8
    assert high < 8
    box = axes.get_window_extent()
    assert max(box.width / (wide * 100), box.height / (high * 100)) > 0.55
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert box.width / box.height == pytest.approx((right - left) / (top - bottom), rel=1e-2)
    low, high = scene.limits()
    assert (left <= low[0]) & (high[0] <= right)
    assert (bottom <= low[1]) & (high[1] <= top)


def drawn(axes):
    """The colours of the lines, and the points of the dots, by colour."""
    lines = [(line.get_color(), line.get_xydata()) for line in axes.lines]
    return lines, [np.asarray(dots.get_offsets()) for dots in axes.collections]


def test_a_still_has_tails_futures_and_paths():
    scene = walkers()
    _, axes = figure_for(scene)
    draw_still(axes, scene)
    (_, truth), (_, tail), (_, path) = drawn(axes)[0]
    assert np.nanmax(tail[:, 0]) == pytest.approx(scene.x[7, 0, 0])
    assert np.nanmin(truth[:, 0]) == pytest.approx(scene.x[7, 0, 0])
    assert np.isfinite(path).all(-1).sum() == 5 * 5  # a start and four times, of five nodes
    _, now, rings = drawn(axes)[1]
    assert len(now) == len(rings) == 5  # the one who is not there yet has neither


def test_a_frame_shows_no_future():
    scene = walkers()
    _, axes = figure_for(scene)
    for step, lines in ((3, 1), (9, 3)):  # tails; then also the way since, and the forecast's
        draw_frame(axes, scene, step)
        assert len(axes.lines) == lines
        highest = max(np.nanmax(line.get_xydata()[:, 0]) for line in axes.lines)
        assert highest <= scene.x[step, 0, 0] + 0.5


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_still_is_written_in_the_format_of_its_name(dims, ending, tmp_path):
    scene = walkers()
    path = plot_scene(dataclasses.replace(scene, dims=dims), tmp_path / "new" / f"a.{ending}")
    if ending == "png":
        with Image.open(path) as picture:
            assert (picture.width > 2 * picture.height) == (dims == 2)
    else:
        assert path.read_bytes()[:5] in (b"<?xml", b"%PDF-")


def test_bodies_are_drawn_with_their_bones():
    x = np.random.default_rng(0).standard_normal((4, 3, 3))
    scene = Scene(
        "body", np.arange(4), x, np.array([1]), {"m": {2: x[3:]}}, bones=[(0, 1)], follow=True
    )
    _, axes = figure_for(scene)
    draw_still(axes, scene)
    assert len(axes.lines) == 3  # now, then, and the forecast


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_forecasts_in_any_number_of_dimensions(n, tmp_path):
    generator = torch.Generator().manual_seed(0)
    graph = SpacetimeGraph(*torch.randn(2, 2, 4, 5, n, generator=generator))
    forecast = LastFrame()(graph)
    path = plot_forecasts(graph, forecast, {"last frame": forecast}, tmp_path / "new" / "a.png")
    with Image.open(path) as picture:
        assert picture.format == "PNG"


def test_the_test_windows_of_a_task(tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 3, 2)).cumsum(0)
    task = Task.from_trajectories(Trajectories.from_arrays(x))
    assert plot_trajectories(task, tmp_path / "a.svg").read_text().lstrip().startswith("<?xml")


def test_windows_with_gaps_are_drawn_where_they_were_observed():
    """Padding lies at 0, far from all nodes: no picture goes there."""
    x = 100 + torch.randn(1, 4, 3, 2, generator=torch.Generator().manual_seed(0))
    observed = torch.tensor([[[True, True, False]] * 4])
    graph = SpacetimeGraph(
        x.masked_fill(~observed[..., None], 0.0), torch.zeros_like(x), observed=observed
    )
    target = Forecast(graph.x[:, -2:], graph.v[:, -2:], mask=observed[:, -2:])
    (scene,) = scenes_of(graph, target, {"last frame": LastFrame()(graph)}, ["one"])
    assert scene.limits()[0][:2].min() > 90
    assert np.isnan(scene.x[:, 2, :2]).all()
    assert scene.observed == 3
