"""The curves of the figures, as plain numbers: for the figures and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from spacetime_en.nn.presets import build_model
from spacetime_en.reproduce.columns import ERRORS
from spacetime_en.reproduce.experiment import Result
from spacetime_en.reproduce.plan import BASELINES, HORIZONS, MODELS, Data
from spacetime_en.reproduce.tables import TRIVIAL, Results

SIZES = (5, 20, 30)


@dataclass(frozen=True)
class Curve:
    """One line.

    Args:
        label: of the model.
        x, y: its points.
        trivial: whether it is a forecast that learns nothing.
    """

    label: str
    x: list[float]
    y: list[float]
    trivial: bool = False


@dataclass(frozen=True)
class Panel:
    """A picture of curves.

    Args:
        name: of its files.
        title, x, y: of the picture and its axes.
        curves: the lines.
        log_x, log_y: scales of the axes.
        ticks: of the x axis, if only these make sense.
    """

    name: str
    title: str
    x: str
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = True
    ticks: list[int] = field(default_factory=list)


def make_panels(results: Results) -> list[Panel]:
    """Every picture that has something to show."""
    panels = [
        _against(
            results,
            {n: Data(n) for n in SIZES},
            Panel("mse_vs_n", "Test error against N, one seed", "particles N", "position MSE", []),
        ),
        _parameters(),
        _against(
            results,
            {h: Data(steps_ahead=h) for h in HORIZONS},
            Panel(
                "error_vs_horizon",
                "Test error against the horizon, N = 5",
                "horizon H, steps",
                "position MSE",
                [],
                log_x=True,
            ),
        ),
        _learning(results),
    ]
    return [panel for panel in panels if panel.curves]


def _against(results: Results, data: dict[int, Data], panel: Panel) -> Panel:
    """The mean test error of each model at each of some tasks, of the first seed."""
    found: dict[str, dict[int, Result]] = {
        model: {
            at: result
            for at, where in data.items()
            if (result := results.tested(where, model)) is not None
        }
        for model in BASELINES
    }
    whose = [(MODELS[model].label, "model", own) for model, own in found.items()]
    everybody = {at: r for own in found.values() for at, r in sorted(own.items())}
    whose += [(label, who, everybody) for who, label in TRIVIAL.items()]
    for label, who, own in whose:
        cells = {at: ERRORS[0].of([result], who).value for at, result in sorted(own.items())}
        points = {float(at): mse for at, mse in cells.items() if mse is not None}
        if points:
            trivial = who != "model"
            panel.curves.append(Curve(label, list(points), list(points.values()), trivial))
    panel.ticks.extend(data)
    return panel


def _parameters() -> Panel:
    curves = []
    for model in BASELINES:
        counts = []
        for nodes in SIZES:
            with torch.device("meta"):  # counts need no memory
                built = build_model(MODELS[model].preset, nodes=nodes)
            counts.append(float(sum(p.numel() for p in built.parameters())))
        curves.append(Curve(MODELS[model].label, [float(n) for n in SIZES], counts))
    return Panel(
        "parameters_vs_n",
        "Parameters against N",
        "particles N",
        "parameters",
        curves,
        ticks=list(SIZES),
    )


def _learning(results: Results) -> Panel:
    curves = []
    for model in BASELINES:
        result = results.tested(Data(), model)
        if result is not None:
            own = result["training"]
            # The clock runs evenly: minutes are steps, at the pace of the whole.
            pace = own["seconds"] / own["steps"] / 60
            points: Sequence[tuple[int, float | None]] = own["curve"]
            known = [(step * pace, mse) for step, mse in points if mse is not None]
            if known:
                x, y = zip(*known, strict=True)
                curves.append(Curve(MODELS[model].label, list(x), list(y)))
    return Panel(
        "learning_curves",
        "Validation error while training, N = 5",
        "training time, minutes",
        "validation position MSE",
        curves,
    )
