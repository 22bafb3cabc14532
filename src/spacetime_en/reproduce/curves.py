"""The curves of the figures, as plain numbers: for the figures and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from spacetime_en.nn.presets import build_model
from spacetime_en.reproduce.experiment import Result
from spacetime_en.reproduce.plan import BASELINES, HORIZONS, MODELS, Data, Experiment
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
            Panel("mse_vs_n", "Test error against N", "particles N", "position MSE", []),
        ),
        _parameters(),
        _against(
            results,
            {h: Data(horizon=h) for h in HORIZONS},
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
    seed = results.scale.seeds[0]
    found: dict[str, dict[int, Result]] = {
        model: {
            at: result
            for at, where in data.items()
            for result in results.of([Experiment(where, model, seed)])
        }
        for model in BASELINES
    }
    for model, own in found.items():
        if own:
            y = [r["test"]["position_mse"]["mean"] for r in own.values()]
            panel.curves.append(Curve(MODELS[model].label, [float(at) for at in own], y))
    for key, label in TRIVIAL.items():
        known = {at: r for own in found.values() for at, r in own.items()}
        at = sorted(known)
        y = [known[a]["test"][key]["mean"] for a in at]
        if at:
            panel.curves.append(Curve(label, [float(a) for a in at], y, trivial=True))
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
        for result in results.of([Experiment(Data(), model, results.scale.seeds[0])]):
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
