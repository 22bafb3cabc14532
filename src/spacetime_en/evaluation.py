"""Evaluation of a model on a task: errors, symmetries, calibration, conserved quantities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt, checked
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.conservation.drift import measure_drift
from spacetime_en.data.compatibility import data_mismatches, window_mismatches
from spacetime_en.data.task import Split, Task
from spacetime_en.data.windows import Windows
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import (
    PathErrors,
    calibration,
    errors,
    predicted_and_actual_mse,
    summary,
)
from spacetime_en.nn.forecaster import Example, Forecaster
from spacetime_en.nn.models.ridge import SharedRidge
from spacetime_en.nn.models.trivial import TRIVIAL_MODELS
from spacetime_en.testing import equivariance_errors

TRIVIAL_FORECASTS = {name.replace("-", "_"): kind for name, kind in TRIVIAL_MODELS.items()}
# What every model is compared with: the trivial forecasts and, where it fits the data, ridge.
RIVALS = (*TRIVIAL_FORECASTS, "ridge")
_MOST_WINDOWS, _MOST_NUMBERS = 20_000, 1 << 25  # for fitting ridge in seconds


@dataclass(frozen=True)
class Errors:
    """The errors of a model on windows.

    Args:
        position, velocity: the MSE of each window, per coordinate, (W,).
        predicted, actual: the MSE of each node, as predicted by the forecast's spread and as
            found, (nodes,); None for models without a spread.
        paths: the distances of all nodes from their targets.
    """

    position: Tensor
    velocity: Tensor
    predicted: Tensor | None = None
    actual: Tensor | None = None
    paths: PathErrors | None = None

    def calibration(self, groups: int = 5) -> list[dict[str, float]] | None:
        """Predicted and actual errors, see :func:`~spacetime_en.metrics.calibration`."""
        if self.predicted is None or self.actual is None:
            return None
        return calibration(self.predicted, self.actual, groups)

    def summary(self) -> dict[str, dict[str, float]]:
        """The distribution over windows of the position and velocity MSE."""
        return {"position_mse": summary(self.position), "velocity_mse": summary(self.velocity)}

    def of_paths(self, times: Sequence[float], steps: Sequence[int]) -> dict[str, Any]:
        """ADE, FDE, error against time, and best of several samples; empty for a single time.

        Args:
            times, steps: the target times, (T,) each, in units of time and in frame intervals.
        """
        if self.paths is None or len(times) == 1:
            return {}
        rows = zip(times, steps, self.paths.against_time(), strict=True)
        return {
            "ade": self.paths.ade,
            "fde": self.paths.fde,
            "error_against_time": [{"time": t, "step": s} | row for t, s, row in rows],
            "best_of": self.paths.best_of(),
            "paths": {"nodes": len(self.paths)} | self.paths.of_nodes(),
        }


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate`.

    Args:
        report: summary statistics, as plain numbers.
        errors: of the model and of each rival, by name, for every window.
        runs: the trajectory of each window, (W,).
        first_steps: the step of the first frame of each window, (W,).
    """

    report: dict[str, Any]
    errors: dict[str, Errors]
    runs: NDArray[np.int64]
    first_steps: NDArray[np.int64]

    def table(self) -> list[dict[str, Any]]:
        """One row per window: trajectory, first step, and all errors."""
        columns: dict[str, list[Any]] = {
            "trajectory": self.runs.tolist(),
            "first_step": self.first_steps.tolist(),
        }
        for name, error in self.errors.items():
            columns[f"{name}_position_mse"] = error.position.tolist()
            columns[f"{name}_velocity_mse"] = error.velocity.tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@checked
def evaluate(
    model: Forecaster,
    task: Task,
    *,
    split: Split = "test",
    batch_size: PositiveInt = 100,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Evaluate a model on all windows of a split.

    The report holds ``position_mse`` and ``velocity_mse``, per coordinate, each with its mean,
    standard error, median and 90th percentile over the windows. For several target times it also
    holds ``ade``, ``fde``, ``error_against_time``, for forecasts with samples ``best_of``, and
    ``paths``, the distribution of ADE and FDE over nodes. All of these are repeated for each of
    the rivals (whose ``mean``, ``median`` and ``p90`` are those of the positions): the trivial
    forecasts and, where it fits the data, ridge regression with one set of weights for all nodes,
    fitted to the task's training windows.

    The report continues with the equivariance errors of the model, and the drift of conserved
    quantities from the last frame to the target times, along with that of the true paths (see
    :func:`~spacetime_en.conservation.drift.measure_drift`). If the forecasts have a spread,
    ``calibration`` compares it with their errors. ``warnings`` lists how the task differs from the
    one that the model was trained on; data of a different kind are refused.

    Args:
        model: any model; it is put in eval mode.
        task: the task to evaluate on.
        split: the split of the task.
        batch_size: number of windows per forward pass.
        progress: called with the number of windows finished since the last call.
    """
    windows = task.splits[split].for_model(model)
    model_errors, forecasts = measure_errors(model, windows, batch_size, progress)
    bad = ~(model_errors.position + model_errors.velocity).isfinite()  # (W,)
    if bad.all():
        raise InputError("model: all of its forecasts are NaN or infinite; train it again.")
    by_name = {"model": model_errors}
    for name, rival in _rivals(model, task, batch_size).items():
        by_name[name], _ = measure_errors(rival, windows, batch_size)
    sample, _ = windows[: min(len(windows), 16)]
    sample = _as_the_model(model, sample)
    # Translations on the scale of the data: 1000 would be negligible for data in micrometres.
    extent = max(1.0, float(sample.x.abs().max()))
    # (To the digits of single precision: 0.4, not 0.4000000059604645.)
    times = [float(f"{time:.7g}") for time in sample.horizon.double().mean(0).tolist()]
    steps = np.atleast_1d(windows.target_steps).tolist()
    report: dict[str, Any] = {
        "task": task.label,
        "split": split,
        "windows": len(windows),
        "horizon_times": times,
        "model": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        **model_errors.summary(),
        **model_errors.of_paths(times, steps),
    }
    for name in RIVALS:
        if name in by_name:
            summaries = by_name[name].summary()
            paths = by_name[name].of_paths(times, steps)
            report[name] = summaries["position_mse"] | summaries | paths
    report["equivariance_error"] = equivariance_errors(
        model, sample, max_translation=extent
    )._asdict()
    report["calibration"] = model_errors.calibration()
    report["drift"] = measure_drift(model, task, windows, forecasts, batch_size)
    report["warnings"] = []
    if bad.any():
        report["warnings"].append(f"{int(bad.sum())} forecasts are NaN or infinite.")
    if model.trained_on is not None:
        report["warnings"] += data_mismatches(model.trained_on, task.splits[split].trajectories)
        report["warnings"] += window_mismatches(
            model.trained_on, windows, any_horizon=model.reads_horizon
        )
    runs, frames = windows.locate()
    return Evaluation(report, by_name, runs, windows.trajectories.steps[frames[:, 0]])


def measure_errors(
    model: Forecaster,
    windows: Windows,
    batch_size: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[Errors, Forecast]:
    """The errors of a model on windows, on the CPU in double precision.

    Returns: the errors, and all forecasts, padded to the same number of nodes.
    """
    batches, calibrations, paths, states = [], [], [], []
    for graph, target, forecast in _forecasts(model, windows, batch_size):
        batches.append(errors(forecast, target))
        paths.append(PathErrors.of(forecast, target))
        states.append((forecast.x, forecast.v))
        if forecast.spread is not None:
            calibrations.append(predicted_and_actual_mse(forecast, target))
        if progress is not None:
            progress(len(graph))
    position, velocity = (torch.cat(parts) for parts in zip(*batches, strict=True))
    nodes = max(x.shape[2] for x, _ in states)
    x, v = (
        torch.cat([functional.pad(t, (0, 0, 0, nodes - t.shape[2])) for t in parts])
        for parts in zip(*states, strict=True)
    )
    found = Errors(position, velocity, paths=PathErrors.join(paths))
    if calibrations:
        predicted, actual = (torch.cat(parts) for parts in zip(*calibrations, strict=True))
        found = replace(found, predicted=predicted, actual=actual)
    return found, Forecast(x, v)


def _rivals(model: Forecaster, task: Task, batch_size: int) -> dict[str, Forecaster]:
    """The trivial forecasts, and ridge fitted to the training windows as the model reads them."""
    rivals = {name: trivial() for name, trivial in TRIVIAL_FORECASTS.items()}
    train, val = (windows.for_model(model) for windows in (task.train, task.val))
    graph, _ = train[:1]
    frames, targets = graph.x.shape[1], graph.horizon.shape[1]
    ridge = SharedRidge(frames, graph.edge_width, targets)
    try:
        ridge.solve(_examples(train, batch_size), _examples(val, batch_size))
    except InputError:  # data that it does not fit
        return rivals
    return rivals | {"ridge": ridge}


def _examples(windows: Windows, batch_size: int) -> Iterator[Example]:
    """Batches of windows; an evenly spaced subset if all of them would take too long to fit."""
    graph, _ = windows[evenly_spaced_indices(len(windows), 16)]
    L, N, n = graph.x.shape[1:]
    K = N if graph.neighbours is None else graph.neighbours.shape[-1]
    most = max(1, min(_MOST_WINDOWS, _MOST_NUMBERS // (N * max(K, L * n))))
    for rows in evenly_spaced_indices(len(windows), most).split(batch_size):
        yield windows[rows]


def mean_position_error(model: Forecaster, windows: Windows, batch_size: int) -> float:
    """The mean position MSE of a model on windows, with one batch in memory at a time."""
    total = 0.0
    for _, target, forecast in _forecasts(model, windows, batch_size):
        position, _ = errors(forecast, target)
        total += float(position.sum())
    return total / len(windows)


def _forecasts(
    model: Forecaster, windows: Windows, batch_size: int
) -> Iterator[tuple[SpacetimeGraph, Forecast, Forecast]]:
    """Batches of windows, targets and forecasts, the latter two in double precision."""
    for first in range(0, len(windows), batch_size):
        graph, target = windows[first : first + batch_size]
        yield graph, target.to(torch.float64), forecast_in_double(model, graph)


def forecast_in_double(model: Forecaster, graph: SpacetimeGraph) -> Forecast:
    """A model's forecast, computed on its own device and dtype, returned on the CPU in double."""
    with torch.no_grad():
        return model.eval()(_as_the_model(model, graph)).to(torch.device("cpu"), torch.float64)


def _as_the_model(model: Forecaster, graph: SpacetimeGraph) -> SpacetimeGraph:
    parameter = next(model.parameters(), None)
    return graph if parameter is None else graph.to(parameter.device, parameter.dtype)
