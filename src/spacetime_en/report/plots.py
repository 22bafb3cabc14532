"""Pictures of graphs and forecasts, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.tensors import evenly
from spacetime_en.testing import Model

if TYPE_CHECKING:
    from spacetime_en.data import Task

# Okabe and Ito's palette: told apart by all readers.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]
MARKERS = "oXDPv^"  # of models


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, which needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot_trajectories(task: Task, path: Path, count: int = 6) -> Path:
    """Draw a few test windows: observed frames as lines, targets as stars, joined by dots.

    Args:
        task: whose test windows are drawn.
        path: of the PNG; its folder is made.
        count: how many.
    Returns: `path`.
    """
    spread = evenly(len(task.test), count)
    graph, target = task.test[spread.tolist()]
    figure = new_figure(9.5, 6.2)
    figure.suptitle(f"{task.label}: observed frames (lines) and targets (stars)", fontsize=11)
    flat = graph.x.shape[-1] < 3
    for place in range(len(graph)):
        axes: Any = figure.add_subplot(2, 3, place + 1, projection=None if flat else "3d")
        for node in range(graph.x.shape[2]):
            colour = COLOURS[node % len(COLOURS)]
            past, goal = graph.x[place, :, node].numpy(), target.x[place, node].numpy()
            axes.plot(*past.T, color=colour, linewidth=2.5)
            axes.plot(*zip(past[-1], goal, strict=True), color=colour, linestyle=":", linewidth=1)
            axes.scatter(*goal, color=colour, marker="*", s=45)
        axes.set_title(f"test window {int(spread[place])}", fontsize=9)
        cube(axes, torch.cat([graph.x[place].flatten(0, 1), target.x[place]]))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def plot_forecasts(
    graph: SpacetimeGraph, target: Forecast, forecasts: dict[str, Forecast], path: Path
) -> Path:
    """Draw windows with their true futures (stars) and what models forecast (other marks).

    Args:
        graph: the windows, one panel each, in two or three dimensions.
        target: the truth.
        forecasts: by the name of the model.
        path: of the PNG; its folder is made.
    Returns: `path`.
    """
    count, flat = len(graph), graph.x.shape[-1] < 3
    figure = new_figure(4.4 * count, 4.8)
    for place in range(count):
        axes: Any = figure.add_subplot(1, count, place + 1, projection=None if flat else "3d")
        for node in range(graph.x.shape[2]):
            colour = COLOURS[node % len(COLOURS)]
            past, goal = graph.x[place, :, node].numpy(), target.x[place, node].numpy()
            axes.plot(*past.T, color=colour, linewidth=3)
            axes.plot(*zip(past[-1], goal, strict=True), color=colour, linestyle=":", linewidth=1)
            axes.scatter(
                *goal, color=colour, marker="*", s=90, label="truth" if node == 0 else None
            )
            for marker, (name, forecast) in zip(MARKERS, forecasts.items(), strict=False):
                axes.scatter(
                    *forecast.x[place, node].numpy(),
                    facecolors="none" if marker == "o" else colour,
                    edgecolors=colour,
                    marker=marker,
                    s=55 if marker == "o" else 22,
                    label=name if node == 0 else None,
                )
        points = [graph.x[place].flatten(0, 1), target.x[place]]
        cube(axes, torch.cat([*points, *(f.x[place] for f in forecasts.values())]))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def plot_equivariance(model: Model, graph: SpacetimeGraph, q: Tensor, path: Path) -> Path:
    """Draw that forecasting and turning commute, for the first graph of the batch (3-D).

    Left: the window and its forecast. Right: the turned window, its forecast (dots), and the
    left forecast turned (rings): the dots lie in the rings.

    Args:
        model: any callable from graph to forecast.
        graph: in three dimensions.
        q: the rotation, (3, 3).
        path: of the PNG; its folder is made.
    Returns: `path`.
    """
    graph = graph[:1]
    with torch.no_grad():
        here, there = model(graph), model(graph.rotate(q))
    figure = new_figure(9, 4.2)
    panels = (
        ("forecast(window)", graph, here, None),
        ("forecast(Q window)  ●   and   Q forecast(window)  ○", graph.rotate(q), there, here),
    )
    for place, (title, window, dots, to_turn) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, 2, place, projection="3d")
        axes.set_title(title, fontsize=10)
        _draw(axes, window, dots, None if to_turn is None else to_turn.rotate(q))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _draw(axes: Any, graph: SpacetimeGraph, dots: Forecast, rings: Forecast | None) -> None:
    """Past frames as a line that ends in a square, the forecast as a dot, `rings` around dots."""
    for node in range(graph.x.shape[2]):
        colour = COLOURS[node % len(COLOURS)]
        past = graph.x[0, :, node].numpy()
        axes.plot(*past.T, color=colour, linewidth=2.5)
        axes.scatter(*past[-1], color=colour, marker="s", s=18)
        axes.scatter(*dots.x[0, node].numpy(), color=colour, s=30)
        if rings is not None:
            axes.scatter(
                *rings.x[0, node].numpy(),
                s=130,
                facecolors="none",
                edgecolors="black",
                linewidths=1,
            )
    cube(axes, torch.cat([graph.x[0].flatten(0, 1), dots.x[0]]))


def cube(axes: Any, points: Tensor | NDArray[Any]) -> None:
    """Equal scales, limits that make a cube around the points (k, n), few ticks."""
    points = torch.as_tensor(points)
    low, high = points.amin(0), points.amax(0)
    middle, half = (low + high) / 2, float((high - low).max()) * 0.55
    for name, centre in zip("xyz", middle.tolist(), strict=False):
        getattr(axes, f"set_{name}lim")(centre - half, centre + half)
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)
    axes.tick_params(labelsize=7)
