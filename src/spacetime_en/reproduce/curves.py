"""The data of the figures' curves, for matplotlib and for the HTML report."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spacetime_en.compare.panel import Curve, Panel
from spacetime_en.compare.results import Result
from spacetime_en.nn.presets import build_model
from spacetime_en.reproduce.columns import ERRORS
from spacetime_en.reproduce.plan import BASELINES, HORIZONS, MODELS, Data
from spacetime_en.reproduce.tables import TRIVIAL, Results

SIZES = (5, 20, 30)


def make_panels(results: Results) -> list[Panel]:
    """All figures for which there are results."""
    mse = "position MSE"
    sizes = Panel("mse_vs_n", "Test error against N, one seed", "particles N", mse, [])
    title, x = "Test error against the horizon, N = 5", "horizon H, steps"
    horizons = Panel("error_vs_horizon", title, x, mse, [], log_x=True)
    panels = [
        _against(results, {n: Data(n) for n in SIZES}, sizes),
        _parameters(),
        _against(results, {h: Data(steps_ahead=h) for h in HORIZONS}, horizons),
        _learning(results),
    ]
    return [panel for panel in panels if panel.curves]


def _against(results: Results, data: dict[int, Data], panel: Panel) -> Panel:
    """The mean test error of each model on each task, for the first seed."""
    by_model: dict[str, dict[int, Result]] = {model: {} for model in BASELINES}
    for model, tested in by_model.items():
        tries = ((at, results.tested(where, model)) for at, where in data.items())
        tested |= {at: result for at, result in tries if result is not None}
    lines = [(MODELS[model].label, "model", tested) for model, tested in by_model.items()]
    # Every result has the trivial forecasts' errors on its task: any of them will do.
    anyones = {at: result for tested in by_model.values() for at, result in sorted(tested.items())}
    lines += [(label, who, anyones) for who, label in TRIVIAL.items()]
    for label, who, tested in lines:
        cells = {at: ERRORS[0].of([result], who).value for at, result in sorted(tested.items())}
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
            with torch.device("meta"):  # parameter counts need no memory
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
            training = result["training"]
            minutes_per_step = training["seconds"] / training["steps"] / 60
            curve: Sequence[tuple[int, float | None]] = training["curve"]
            points = [(step * minutes_per_step, mse) for step, mse in curve if mse is not None]
            if points:
                x, y = zip(*points, strict=True)
                curves.append(Curve(MODELS[model].label, list(x), list(y)))
    return Panel(
        "learning_curves",
        "Validation error while training, N = 5",
        "training time, minutes",
        "validation position MSE",
        curves,
    )
