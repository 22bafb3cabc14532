"""Pictures of graphs and forecasts, drawn with matplotlib."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.testing import Model

# Okabe and Ito's palette: told apart by all readers.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]


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
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
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
    axes.set_aspect("equal")
    axes.tick_params(labelsize=7)
