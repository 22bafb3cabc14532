"""The figures of the report, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from spacetime_en.compare.panel import Curve, Panel
from spacetime_en.report.drawing import draw_panels
from spacetime_en.report.plots import COLOURS, MARKERS, new_figure, save_figure
from spacetime_en.report.scene import Scene

ATTENTION = ("features", "positions", "velocities")


def plot_panel(panel: Panel, folder: Path) -> list[Path]:
    """Draw one curve per model; trivial forecasts are grey and dashed."""
    figure = new_figure(5.6, 3.9)
    axes: Any = figure.add_subplot()
    for place, curve in enumerate(panel.curves):
        axes.plot(curve.x, curve.y, **_style(curve, place), label=curve.label)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:,}" for tick in panel.ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    if panel.log_y:
        y = [value for curve in panel.curves for value in curve.y]
        subs = (1.0,) if max(y) > 1e3 * min(y) else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    return _save(figure, folder, panel.name)


def _style(curve: Curve, place: int) -> dict[str, Any]:
    if curve.trivial:
        return {"color": "0.55", "linestyle": "--", "marker": ".", "linewidth": 1.2}
    marker = MARKERS[place % len(MARKERS)]
    return {"color": COLOURS[place % len(COLOURS)], "marker": marker, "markersize": 4.5}


def plot_scenes(scenes: Sequence[Scene], folder: Path, count: int = 3) -> list[Path]:
    """Draw observed frames, the true future, and the forecasts, in 3-D."""
    figure = draw_panels(scenes[:count], count, 4.4)
    return _save(figure, folder, "forecasts")


def plot_attention(maps: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw the mean attention from frame t (rows) to frame s (columns), by block and kind."""
    figure = new_figure(2.5 * len(ATTENTION) + 0.6, 2.4 * len(maps) + 0.4)
    grid: Any = figure.subplots(len(maps), len(ATTENTION), squeeze=False)
    weights = [block[kind] for block in maps for kind in ATTENTION]
    low, high = np.min(weights), np.max(weights)
    for row, block in enumerate(maps):
        for column, kind in enumerate(ATTENTION):
            axes = grid[row][column]
            image = axes.imshow(block[kind], vmin=low, vmax=high, cmap="viridis")
            axes.set_title(f"block {row + 1}, {kind}", fontsize=9)
            bottom, left = row == len(maps) - 1, column == 0
            axes.set(xlabel="frame s" * bottom, ylabel="frame t" * left)
            axes.tick_params(labelsize=7)
    figure.colorbar(image, ax=grid, shrink=0.6)
    return _save(figure, folder, "attention")


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    png = save_figure(figure, folder / f"{name}.png", dpi=130)
    # No date and no random identifiers: the same results give the same file.
    with rc_context({"svg.hashsalt": name}):
        return [png, save_figure(figure, folder / f"{name}.svg", metadata={"Date": None})]
