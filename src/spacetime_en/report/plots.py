"""Code shared by all figures, and the figures that show no scene, drawn with matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError, printable
from spacetime_en._util.files import make_folder, write_atomically
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.testing import Model

# Okabe and Ito's palette, safe for colour-blind readers.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A900"]
MARKERS = "oXDPv^"  # one per model


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, size in inches, that needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def model_colour(place: int) -> str:
    """The colour of a model, by its position among those shown."""
    return COLOURS[place % len(COLOURS)]


def escape(name: str) -> str:
    """Escape a name so that matplotlib shows it literally: ``$`` starts no formula."""
    return printable(name).replace("$", r"\$")


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure in the format of the file's extension; its folder is created.

    Args:
        options: of ``Figure.savefig``, such as `dpi`.
    """
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise InputError(f"{path}: expected a name that ends in .{', .'.join(sorted(formats))}.")
    make_folder(path.parent)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn
        write_atomically(path, lambda part: figure.savefig(part, **options))
    return path


def plot_error_against_time(rows: Mapping[str, Mapping[str, Any]], path: Path) -> Path:
    """Plot how the mean distance from the truth grows with time, one line per forecast.

    Args:
        rows: for each forecast, by name, ``error_against_time`` of an evaluation report; the first
            one is highlighted.
        path: of the picture; its folder is created.
    Returns: `path`.
    """
    figure = new_figure(6.4, 4.2)
    axes: Any = figure.add_subplot()
    for place, (name, row) in enumerate(rows.items()):
        if "error_against_time" not in row:
            raise InputError(
                f"{path}: the error against time needs several target times, and the task has one; "
                "give it a path, such as --task.target-steps 1..12."
            )
        errors = [e for e in row["error_against_time"] if e["mean_distance"] is not None]
        axes.plot(
            [e["time"] for e in errors],
            [e["mean_distance"] for e in errors],
            color=model_colour(place),
            linewidth=1.4 if place else 2.5,
            linestyle="--" if place else "-",
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            zorder=3 if place else 4,
            label=escape(name),
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time after the last frame")
    axes.set_ylabel("mean distance")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return save_figure(figure, path, dpi=150)


def plot_equivariance(model: Model, graph: SpacetimeGraph, q: Tensor, path: Path) -> Path:
    """Show that forecasting and rotating commute, for the first graph of the batch (3-D).

    Left: the window and its forecast. Right: the rotated window, its forecast (dots), and the
    rotated left forecast (rings): the dots should lie in the rings.

    Args:
        model: any callable from graph to forecast.
        graph: in three dimensions.
        q: the rotation, (3, 3).
        path: of the picture; its folder is created.
    """
    graph = graph[:1]
    with torch.no_grad():
        here, there = model(graph), model(graph.rotate(q))
    figure = new_figure(9, 4.2)
    panels = (
        ("forecast(window)", graph, here, None),
        ("forecast(Q window)  ●   and   Q forecast(window)  ○", graph.rotate(q), there, here),
    )
    for place, (title, window, dots, unrotated) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, 2, place, projection="3d")
        axes.set_title(title, fontsize=10)
        _draw(axes, window, dots, None if unrotated is None else unrotated.rotate(q))
    return save_figure(figure, path, dpi=120)


def _draw(axes: Any, graph: SpacetimeGraph, dots: Forecast, rings: Forecast | None) -> None:
    """Draw observed frames as a line ending in a square, and the forecast as dots in `rings`."""
    for node in range(graph.x.shape[2]):
        colour = COLOURS[node % len(COLOURS)]
        past = graph.x[0, :, node].numpy()
        axes.plot(*past.T, color=colour, linewidth=2.5)
        axes.scatter(*past[-1], color=colour, marker="s", s=18)
        axes.scatter(*dots.x[0, -1, node].numpy(), color=colour, s=30)
        if rings is not None:
            style = {"s": 130, "facecolors": "none", "edgecolors": "black", "linewidths": 1}
            axes.scatter(*rings.x[0, -1, node].numpy(), **style)
    equal_axes(axes, torch.cat([graph.x[0].flatten(0, 1), dots.x[0, -1]]))


def equal_axes(axes: Any, points: Tensor | NDArray[Any]) -> None:
    """Set equal scales, limits that form a cube around the points (k, n), and few ticks."""
    points = torch.as_tensor(points)
    low, high = points.amin(0), points.amax(0)
    middle, half = (low + high) / 2, float((high - low).max()) * 0.55
    for name, centre in zip("xyz", middle.tolist(), strict=False):
        getattr(axes, f"set_{name}lim")(centre - half, centre + half)
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)
    axes.tick_params(labelsize=7)
