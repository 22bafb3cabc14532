"""A description of a task: what to look at before any model is trained."""

from typing import Any

import torch

from spacetime_en._util.terminal import Terminal
from spacetime_en.data.simulation.drift import drift_between
from spacetime_en.data.simulation.systems import system_of
from spacetime_en.data.task import Task
from spacetime_en.evaluation import TRIVIAL_FORECASTS, Errors
from spacetime_en.metrics import errors, summary


def describe_task(task: Task, most: int = 20_000) -> dict[str, Any]:
    """Shapes, splits, ranges, drift, and the errors of the trivial forecasts.

    Errors are those of the test windows, at most `most` of them.
    """
    graph, target = task.test[: min(len(task.test), most)]
    L, N, n = graph.x.shape[1:]
    description: dict[str, Any] = {
        "task": task.label,
        "splits": {name: len(windows) for name, windows in task.splits.items()},
        "frames": L,
        "nodes": N,
        "dims": n,
        "features": graph.feature_width,
        "edge_features": graph.edge_width,
        "time_between_frames": float(graph.times.diff(dim=1).mean()) if L > 1 else None,
        "horizon": float(graph.horizon.mean()),
        "largest_position": float(graph.x.abs().max()),
        "largest_speed": float(graph.v.norm(dim=-1).max()),
        "largest_target_position": float(target.x.abs().max()),
        "meta": task.test.trajectories.meta,
        "drift": _drift(task),
    }
    with torch.no_grad():
        for key, trivial in TRIVIAL_FORECASTS.items():
            forecast = trivial()(graph)
            description[key] = Errors(*errors(forecast, target)).summary()
    return description


def _drift(task: Task) -> Any:
    """The drift of each conserved quantity over a run; None for data that were not simulated."""
    runs = task.test.trajectories
    system = system_of(runs)
    if system is None or len(runs.steps) < 2:
        return None
    few = slice(0, 20_000)
    start, end = ((runs.x[few, frame], runs.v[few, frame]) for frame in (0, -1))
    attributes = {name: stacked[few] for name, stacked in runs.attributes.items()}
    changes = drift_between(system, start, end, attributes)
    return {name: summary(torch.from_numpy(change)) for name, change in changes.items()}


def print_task(description: dict[str, Any], terminal: Terminal) -> None:
    """Print a description as tables that fit a terminal."""
    terminal.say(description["task"], "bold")
    splits = ", ".join(f"{name} {count:,}" for name, count in description["splits"].items())
    terminal.print(f"windows: {splits}")
    terminal.print(
        f"each: {description['frames']} frames of {description['nodes']} nodes in "
        f"{description['dims']} dimensions, {description['features']} node feature(s), "
        f"{description['edge_features']} edge attribute(s)"
    )
    between = description["time_between_frames"]
    terminal.print(
        f"time: {'one frame' if between is None else f'{between:g} between frames'}, target "
        f"{description['horizon']:g} after the last"
    )
    terminal.print(
        f"largest: |x| {description['largest_position']:.3g}, speed "
        f"{description['largest_speed']:.3g}, target |x| "
        f"{description['largest_target_position']:.3g}"
    )
    numbers = ("mean", "median", "p90")
    table = []
    for key in TRIVIAL_FORECASTS:
        for what in ("position_mse", "velocity_mse"):
            row = description[key][what]
            name = f"{key.replace('_', ' ')}, {what.replace('_mse', '')} MSE"
            table.append([name, *(f"{row[k]:.4g}" for k in numbers)])
    terminal.table(("to beat (test windows)", *numbers), table)
    if description["drift"]:
        table = [
            [name.replace("_", " "), *(f"{row[k]:.1e}" for k in numbers)]
            for name, row in description["drift"].items()
        ]
        terminal.table(("relative drift over the run", *numbers), table)
    if "picture" in description:
        terminal.say(f"picture: {description['picture']}")
