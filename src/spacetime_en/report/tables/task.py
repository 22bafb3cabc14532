"""A description of a task: what to look at before any model is trained."""

from typing import Any

import numpy as np
import torch

from spacetime_en._util.errors import amount
from spacetime_en._util.terminal import Terminal
from spacetime_en.data.differences import previous_observation
from spacetime_en.data.given import GivenWindows
from spacetime_en.data.simulation.drift import drift_between
from spacetime_en.data.simulation.systems import system_of
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.evaluation import TRIVIAL_FORECASTS, Errors
from spacetime_en.metrics import PathErrors, errors, summary
from spacetime_en.training.settings import TrainingSettings

MOST_NUMBERS = 1 << 25  # in the windows that are summarised: an eighth of a gigabyte


def describe_task(task: Task, most: int = 20_000) -> dict[str, Any]:
    """Recordings, shapes, splits, ranges, drift, and the errors of the trivial forecasts.

    Errors, as MSE per coordinate, are those of the test windows, or of at most `most` of them.
    """
    windows, batch_size = task.test, TrainingSettings().batch
    counts = np.concatenate([part.node_counts for part in task.splits.values()])
    steps = windows.target_steps
    each = (windows.length + len(steps)) * int(counts.max()) * windows.trajectories.x.shape[-1]
    graph, target = windows.sample(min(most, max(1, MOST_NUMBERS // each)))
    L, _, n = graph.x.shape[1:]
    x, v = graph.x, graph.v
    if graph.observed is not None:
        x, v = x[graph.observed], v[graph.observed]
    times = graph.horizon.double().mean(0).tolist()
    description: dict[str, Any] = {
        "task": task.label,
        "recordings": None
        if isinstance(windows, GivenWindows)
        else describe_recordings(windows.trajectories),
        "splits": {name: len(part) for name, part in task.splits.items()},
        "frames": L,
        "nodes": int(counts.max()),
        "mean_nodes": float(counts.mean(dtype=float)),
        "padding": {"batch_size": batch_size, "share": task.train.padding(batch_size)},
        "dims": n,
        "features": graph.feature_width,
        "edge_features": graph.edge_width,
        "time_between_frames": float(graph.times.diff(dim=1).mean()) if L > 1 else None,
        "target_steps": list(steps),
        "target_times": times,
        "horizon": times[-1],
        "largest_position": float(x.abs().max()),
        "largest_speed": float(v.norm(dim=-1).max()),
        "largest_target_position": float(
            (target.x if target.mask is None else target.x[target.mask]).abs().max()
        ),
        "meta": windows.trajectories.meta,
        "drift": _drift(task),
    }
    with torch.no_grad():
        for key, trivial in TRIVIAL_FORECASTS.items():
            forecast = trivial()(graph)
            found = Errors(*errors(forecast, target), paths=PathErrors.of(forecast, target))
            description[key] = found.summary() | found.of_paths(times, steps)
    return description


def describe_recordings(trajectories: Trajectories) -> dict[str, Any]:
    """The numbers of recordings, frames and nodes, and how much of them was observed.

    Returns: ``count``; the frames of the ``shortest`` and the ``longest``; ``nodes``, and
        ``most_at_once``; the fraction of a node's frames, from its first to its last, in which it
        was ``observed``; the number of ``gaps`` in between, and the frames of the ``longest_gap``.
    """
    t = trajectories
    R, T, N, _ = t.x.shape
    lengths = np.full(R, T) if t.lengths is None else t.lengths
    nodes, most, seen, places, gaps, longest_gap = 0, 0, 0, 0, 0, 0
    for run in range(R) if t.observed is not None else ():
        assert t.observed is not None
        observed = np.asarray(t.observed[run])
        ids = None if t.ids is None else np.asarray(t.ids[run])
        before = previous_observation(observed, ids)
        missed = (np.arange(T)[:, None] - before - 1)[before >= 0]  # unobserved frames before each
        nodes += int(observed.any(0).sum()) if ids is None else len(np.unique(ids[ids >= 0]))
        most = max(most, int(observed.sum(1).max()))
        seen, places = seen + int(observed.sum()), places + int(observed.sum() + missed.sum())
        gaps, longest_gap = gaps + int((missed > 0).sum()), max(longest_gap, missed.max(initial=0))
    return {
        "count": R,
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "nodes": N if t.observed is None or t.ids is None else nodes,
        "most_at_once": N if t.observed is None else most,
        "observed": 1.0 if t.observed is None else seen / places,
        "gaps": gaps,
        "longest_gap": int(longest_gap),
    }


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
    """Print a description as lines and tables that fit a terminal."""
    terminal.say(description["task"], "bold")
    if description["recordings"] is not None:
        terminal.print(_in_words(description["recordings"]))
    splits = ", ".join(f"{name} {count:,}" for name, count in description["splits"].items())
    terminal.print(f"windows: {splits}")
    most, mean = description["nodes"], description["mean_nodes"]
    nodes = amount(most, "node")
    nodes = nodes if mean == most else f"up to {nodes} ({mean:.1f} on average)"
    terminal.print(
        f"each: {description['frames']} frames of {nodes} in {description['dims']} dimensions, "
        f"{amount(description['features'], 'node feature')}, "
        f"{amount(description['edge_features'], 'edge attribute')}"
    )
    padding = description["padding"]
    if padding["share"] > 0:
        terminal.print(
            f"padding: {padding['share']:.0%} of the places in batches of {padding['batch_size']} "
            "training windows"
        )
    terminal.print(_times_in_words(description))
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
    terminal.table(("to beat (test, per coordinate)", *numbers), table)
    if len(description["target_times"]) > 1:
        table = [
            [key.replace("_", " "), *(f"{description[key][k]:.4g}" for k in ("ade", "fde"))]
            for key in TRIVIAL_FORECASTS
        ]
        terminal.table(("to beat (test, distances)", "ADE", "FDE"), table)
    if description["drift"]:
        table = [
            [name.replace("_", " "), *(f"{row[k]:.1e}" for k in numbers)]
            for name, row in description["drift"].items()
        ]
        terminal.table(("relative drift over the run", *numbers), table)
    if "picture" in description:
        terminal.say(f"picture: {description['picture']}")


def _in_words(recordings: dict[str, Any]) -> str:
    """Summarise :func:`describe_recordings` in words."""
    r = recordings
    frames = f"{r['longest']:,}" if r["shortest"] == r["longest"] else f"up to {r['longest']:,}"
    nodes = amount(r["nodes"], "node")
    if r["most_at_once"] < r["nodes"]:
        nodes += f", at most {r['most_at_once']:,} at once"
    text = f"recordings: {r['count']:,} of {frames} frames, {nodes}"
    if r["gaps"]:
        text += (
            f"; observed in {100 * r['observed']:.3g} % of their frames, "
            f"{amount(r['gaps'], 'gap')} of up to {amount(r['longest_gap'], 'frame')}"
        )
    return text


def _times_in_words(description: dict[str, Any]) -> str:
    """The time between frames, and to the targets, with the unit if known."""
    meta, between = description["meta"], description["time_between_frames"]
    unit = f" {meta['time_unit']}" if meta.get("time_unit") else ""
    steps, times = description["target_steps"], description["target_times"]
    frames = "one frame" if between is None else f"{between:g}{unit} between frames"
    if len(times) == 1:
        return f"time: {frames}, target {times[0]:g}{unit} after the last"
    return (
        f"time: {frames}, {len(times)} targets {times[0]:g} to {times[-1]:g}{unit} after the last "
        f"({steps[0]} to {steps[-1]} frame intervals)"
    )
