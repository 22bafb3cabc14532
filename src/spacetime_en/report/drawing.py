"""Scenes drawn with matplotlib, in one style for animations, stills and panels.

Observations are dark, a dot with a tail; the truth is a broad grey line that ends in a dot;
forecasts are dashed, in the colour of their model, and end in a ring. Bodies are drawn as bones
instead of lines. Sizes are chosen for pictures that are shown at half scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.data.task import Task
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.report.plots import escape, model_colour, new_figure, save_figure
from spacetime_en.report.scene import Positions, Scene, scenes_of

INK, GREY = "#1c1f24", "#a3a9b3"
OBSERVED = {"color": INK, "linewidth": 2.6}
TRUTH = {"color": GREY, "linewidth": 3.4}
TEXT, FINE = 12, 10  # points
WIDEST, TALLEST, NARROWEST = 8.0, 6.5, 3.4  # inches
FLATTEST = 0.12  # of the longest side
ROOM = 1.2  # inches above and below the scene, for title, axis and legend


def plot_scene(scene: Scene, path: Path) -> Path:
    """Draw a still picture: observed tails, true futures and forecast paths together.

    Args:
        scene: what to draw; if forecasts start at many steps, those from the first.
        path: of the picture, such as .png, .svg or .pdf; its folder is created.
    Returns: `path`.
    """
    figure, axes = figure_for(scene)
    draw_still(axes, scene)
    axes.set_title(escape(scene.title), fontsize=TEXT, loc="left")
    add_legend(figure, list(scene.forecasts))
    return save_figure(figure, path, dpi=200)


def plot_forecasts(
    graph: SpacetimeGraph, target: Forecast, forecasts: Mapping[str, Forecast], path: Path
) -> Path:
    """Draw windows, one panel each, with their targets and the models' forecasts.

    Args:
        graph: the windows; in more than three dimensions, the first three are drawn.
        target: the true future.
        forecasts: by the name of the model.
        path: of the picture; its folder is created.
    Returns: `path`.
    """
    scenes = scenes_of(graph, target, forecasts, [""] * len(graph))
    return save_figure(draw_panels(scenes, len(scenes), 4.4), path, dpi=120)


def plot_trajectories(task: Task, path: Path) -> Path:
    """Draw six test windows: observed frames, and the paths to their targets.

    Args:
        task: the task; in more than three dimensions, the first three are drawn.
        path: of the picture; its folder is created.
    Returns: `path`.
    """
    spread = evenly_spaced_indices(len(task.test), 6).tolist()
    titles = [f"test window {window}" for window in spread]
    scenes = scenes_of(*task.test[spread], {}, titles)
    low, high = (np.stack(edges) for edges in zip(*(s.limits() for s in scenes), strict=True))
    across, up = _sides((high - low).max(0))[:2]
    columns = 3 if scenes[0].dims == 3 or across < 1.6 * up else 2 if across < 4 * up else 1
    figure = draw_panels(scenes, columns, 9.5 / columns)
    figure.suptitle(escape(task.label), fontsize=11)
    return save_figure(figure, path, dpi=110)


def draw_panels(scenes: Sequence[Scene], columns: int, width: float) -> Figure:
    """A figure of stills, each `width` inches wide, with one legend.

    Particles in 3-D are seen along the direction in which their motion extends least.
    """
    turned = [scene.from_the_side() is not scene for scene in scenes]
    scenes = [scene.from_the_side() for scene in scenes]
    rows, height = -(-len(scenes) // columns), width
    if scenes[0].dims == 2:
        sides = [_sides(np.subtract(*scene.limits()[::-1])) for scene in scenes]
        height = min(1.2 * width, width * max(side[1] / side[0] for side in sides) + 0.6)
    figure = new_figure(width * columns, height * rows + 0.6)
    for place, scene in enumerate(scenes, start=1):
        projection = "3d" if scene.dims == 3 else None
        axes: Any = figure.add_subplot(rows, columns, place, projection=projection)
        draw_still(axes, scene)
        axes.set_title(escape(scene.title), fontsize=TEXT)
        if turned[place - 1]:  # rotated axes have no names
            axes.set(xlabel=escape(scene.unit), ylabel="")
    add_legend(figure, list(dict.fromkeys(name for s in scenes for name in s.forecasts)))
    return figure


def figure_for(scene: Scene) -> tuple[Figure, Any]:
    """A figure with axes for a scene, in the scene's aspect ratio."""
    if scene.dims == 3:
        figure = new_figure(6, 6)
        return figure, figure.add_subplot(projection="3d")
    low, high = scene.limits()
    across, up = _sides(high - low)[:2]
    width = min(WIDEST, max(NARROWEST, TALLEST * across / up))
    figure = new_figure(width, min(TALLEST, width * up / across) + ROOM)
    return figure, figure.add_subplot()


def draw_still(axes: Any, scene: Scene) -> None:
    """Draw a scene from its last observed frame on: the whole future and all forecasts."""
    _draw_from(axes, scene, scene.observed)
    _set_view(axes, scene, None)


def draw_frame(axes: Any, scene: Scene, step: int) -> None:
    """Draw a scene at a step, with everything up to then."""
    axes.clear()
    if scene.moving and len(scene.ahead) > 1:
        _draw_from(axes, scene, step)
    else:
        _draw_until(axes, scene, step)
    axes.set_title(escape(scene.title), fontsize=TEXT, loc="left")
    axes.set_title(scene.when(step), fontsize=TEXT, loc="right", color=INK)
    _set_view(axes, scene, step)


def add_legend(figure: Figure, models: Sequence[str]) -> None:
    """One legend for all axes of a figure."""
    lines = [
        ("observed", OBSERVED),
        ("truth", TRUTH),
        *((escape(name), _forecast_style(place)) for place, name in enumerate(models)),
    ]
    axes: Any = figure.axes[0]
    longest = max(len(name) for name, _ in lines)
    # Built from proxy lines: the axes may be cleared, and may lack some of the nodes.
    handles = [type(axes).plot(axes, *[[np.nan]] * _dims(axes), **style)[0] for _, style in lines]
    figure.legend(
        handles,
        [name for name, _ in lines],
        loc="outside lower center",
        ncols=max(1, int(figure.get_figwidth() / (0.8 + 0.09 * longest))),
        fontsize=TEXT,
        frameon=False,
        handlelength=2.6,
    )


def _draw_from(axes: Any, scene: Scene, step: int) -> None:
    """Draw the past of a step, the true future, and the paths forecast from it."""
    now, future = scene.at(step), scene.future(step)
    if scene.bones:
        _bones(axes, now, scene, **OBSERVED)
        _bones(axes, future[-1], scene, **TRUTH)
    else:
        future = future[:, np.isfinite(now).all(-1)]  # of nodes that are present now
        _lines(axes, future, **TRUTH)
        _dots(axes, _ends(future), color=GREY, s=36)
        _lines(axes, scene.past(step), **OBSERVED)
        _dots(axes, now, color=INK, s=36)
    for place, name in enumerate(scene.forecasts):
        made = scene.forecasts[name].get(step)
        if made is not None:
            _forecast(axes, np.concatenate([now[None], made]), scene, place)


def _draw_until(axes: Any, scene: Scene, step: int) -> None:
    """Draw the observed past, the motion since then, and the forecasts for it."""
    now = scene.at(step)
    if scene.bones:
        _bones(axes, now, scene, **(TRUTH if scene.moving or step > scene.observed else OBSERVED))
    else:
        seen = step if scene.moving else min(step, scene.observed)
        _lines(axes, scene.past(seen), **OBSERVED)
        if step > seen:
            since = (scene.steps >= seen) & (scene.steps <= step)
            _lines(axes, scene.x[since], **TRUTH)
        _dots(axes, now, color=INK, s=36)
    for place, name in enumerate(scene.forecasts):
        path = scene.forecast_at(name, step)
        if path is not None:
            _forecast(axes, path, scene, place)


def _forecast(axes: Any, path: Positions, scene: Scene, place: int) -> None:
    """Draw a path of forecasts, (K, N, 3), dashed, with rings at its end."""
    style = _forecast_style(place)
    if scene.bones:
        _bones(axes, path[-1], scene, **style)
        return
    # A node without a start had no forecast: its dashes would start nowhere.
    path = path[:, np.isfinite(path[0]).all(-1)]
    _lines(axes, path, **style)
    ring = {"facecolors": "none", "edgecolors": style["color"], "linewidths": 2.0}
    _dots(axes, path[-1], s=70, zorder=4, **ring)


def _forecast_style(place: int) -> dict[str, Any]:
    return {"color": model_colour(place), "linewidth": 2.2, "linestyle": (0, (2.6, 1.3))}


def _lines(axes: Any, paths: Positions, **style: Any) -> None:
    """Draw one line for each node of (K, N, 3) in a single call: NaN breaks the line."""
    if len(paths) > 1:
        gap = np.full_like(paths[:1], np.nan)
        points = np.concatenate([paths, gap]).swapaxes(0, 1).reshape(-1, 3)
        axes.plot(*points.T[: _dims(axes)], solid_capstyle="round", **style)


def _dots(axes: Any, x: Positions, **style: Any) -> None:
    """Draw a dot for each node of (N, 3) that is present."""
    there = x[np.isfinite(x).all(-1)]
    flat = {"depthshade": False} if _dims(axes) == 3 else {}  # distant dots are not fainter
    axes.scatter(*there.T[: _dims(axes)], **{"zorder": 3, **flat, **style})


def _ends(paths: Positions) -> Positions:
    """The last position of each node of (K, N, 3), (N, 3); NaN if that is its first."""
    there = np.asarray(np.isfinite(paths).all(-1))
    last = len(paths) - 1 - there[::-1].argmax(0)
    ends = paths[last, np.arange(len(last))]
    return np.where((last > 0)[:, None], ends, np.nan)


def _bones(axes: Any, x: Positions, scene: Scene, **style: Any) -> None:
    pairs = np.array(scene.bones)
    _lines(axes, np.stack([x[pairs[:, 0]], x[pairs[:, 1]]]), **style)


def _dims(axes: Any) -> int:
    return 3 if axes.name == "3d" else 2


def _sides(size: Positions) -> Positions:
    """The sides of the axes box, (3,): with a margin, and none much shorter than the longest."""
    longest = float(size.max()) or 1.0
    return np.asarray(np.maximum(size + 0.1 * longest, FLATTEST * longest))


def _set_view(axes: Any, scene: Scene, step: int | None) -> None:
    """Set equal scales and limits that fit the scene, or that follow its nodes."""
    if scene.follow:
        sizes = np.nanmax(scene.x, axis=1) - np.nanmin(scene.x, axis=1)
        now = scene.at(scene.observed if step is None else step)
        middle, sides = np.nanmean(now, axis=0), _sides(1.2 * sizes.max(axis=0))
    else:
        low, high = scene.limits()
        middle, sides = (low + high) / 2, _sides(high - low)
    names = "xyz"[: _dims(axes)]
    for name, centre, side in zip(names, middle, sides, strict=False):
        getattr(axes, f"set_{name}lim")(centre - side / 2, centre + side / 2)
    if len(names) == 3:
        axes.set_box_aspect(sides)
        axes.locator_params(nbins=4)
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.pane.fill = False
            axis._axinfo["grid"].update(color="#e4e6ea", linewidth=0.8)
    else:
        axes.set_aspect("equal")
        axes.spines[["top", "right"]].set_visible(False)
        unit = f" ({escape(scene.unit)})" if scene.unit else ""
        axes.set_xlabel(f"x{unit}", fontsize=FINE)
        axes.set_ylabel(f"y{unit}", fontsize=FINE)
        axes.locator_params(axis="y", nbins=max(2, int(6 * min(1.0, sides[1] / sides[0]))))
    axes.tick_params(labelsize=FINE)
