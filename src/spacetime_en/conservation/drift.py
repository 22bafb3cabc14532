"""How far forecasts drift from conserved quantities, compared with the truth."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.conservation.paths import MASS, Paths, true_paths
from spacetime_en.conservation.quantities import (
    LearnedEnergy,
    Quantity,
    SystemEnergy,
    angular_momentum,
    changes,
    momentum,
)
from spacetime_en.conservation.search import LEAST_PATHS, Conserved, find_conserved
from spacetime_en.conservation.terms import kinds_of
from spacetime_en.data.graphs import attribute_names
from spacetime_en.data.simulation.systems import system_of
from spacetime_en.data.task import Task
from spacetime_en.data.windows import Windows
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import both, summary
from spacetime_en.nn.forecaster import Forecaster

USUAL = ("momentum", "angular momentum")
_MOST_PAIRS = 1 << 21  # of nodes, in all frames of the searched paths
_MOST_ATTRIBUTES = 8  # of nodes; more than that are labels, such as names of joints


def measure_drift(
    model: Forecaster, task: Task, windows: Windows, forecasts: Forecast, batch_size: int
) -> dict[str, Any]:
    """The change of quantities from the last frame to the target times, in forecasts and truth.

    These are the momentum and the angular momentum; the energy, if the data come from a system
    with a known potential; the ``learned_energy`` of a model that has one; and, if the system is
    not known, whatever else the training windows are found to conserve (``found``). Changes are
    relative to the sum of the absolute values of a quantity's parts in the last frame. Only nodes
    that are present in the last frame and at all target times count; states are without noise, if
    noise was added to the data here. Nothing is ``found`` if velocities are differences and a
    window's frames are further apart than those of the recording.

    Args:
        model: the model that made the forecasts.
        task: the task that `windows` are from.
        windows: all that were forecast.
        forecasts: x and v, (W, T, N, n), windows of fewer nodes padded.
        batch_size: windows at a time.
    Returns: ``forecast`` and ``truth``, the distribution over windows at the last target time, by
        quantity; for paths ``against_time``, the medians at each; ``found``.
    """
    searched = system_of(windows.trajectories) is None and _in_step(windows)
    found = _found(model, task) if searched else []
    truth: defaultdict[str, list[Tensor]] = defaultdict(list)
    forecast: defaultdict[str, list[Tensor]] = defaultdict(list)
    windows = windows.without_noise()
    has_energy = _has_energy(model, windows)
    for first in range(0, len(windows), batch_size):
        rows = slice(first, min(first + batch_size, len(windows)))
        graph, target = windows[rows]
        parts = forecasts[rows]
        nodes = graph.x.shape[2]
        foretold = Forecast(parts.x[:, :, :nodes], parts.v[:, :, :nodes])
        for states, kept in ((target, truth), (foretold, forecast)):
            paths = _from_the_last_frame(graph, states, target.mask, windows, bool(found))
            for name, quantity in _known(model, has_energy, graph, windows, rows, paths):
                kept[name].append(changes(quantity, paths))
            middle = _when_velocities_were(paths, graph, windows)
            for name, conserved in _by_name(found).items():
                kept[name].append(changes(conserved.quantity, middle.connected()))
    report: dict[str, Any] = {
        key: {name: _summary(torch.cat(parts)[:, -1]) for name, parts in kept.items()}
        for key, kept in (("forecast", forecast), ("truth", truth))
    }
    if len(windows.target_steps) > 1:
        report["against_time"] = {
            key: {name: _medians(torch.cat(parts)) for name, parts in kept.items()}
            for key, kept in (("forecast", forecast), ("truth", truth))
        }
    report["found"] = {name: one.describe() for name, one in _by_name(found).items()}
    return report


def _found(model: Forecaster, task: Task) -> list[Conserved]:
    """What else the training windows conserve; nothing, where that cannot be determined."""
    try:
        paths = [true_paths(part.for_model(model)) for part in (task.train, task.val)]
        found = find_conserved(*(_sampled(each) for each in paths)).conserved
    except InputError:
        return []
    return [one for one in found if one.quantity.name not in USUAL]


def _sampled(paths: Paths) -> Paths:
    """Evenly spaced paths with at most `_MOST_PAIRS` pairs in all frames, or a few paths."""
    _, T, N, _ = paths.x.shape
    if len(paths.nodes) > _MOST_ATTRIBUTES:
        nodes = {name: a for name, a in paths.nodes.items() if name == MASS}
        paths = dataclasses.replace(paths, nodes=nodes)
    kept = max(2 * LEAST_PATHS, _MOST_PAIRS // (T * N * N))
    return paths[:: max(1, len(paths) // kept)]


def _by_name(found: list[Conserved]) -> dict[str, Conserved]:
    """``energy_found`` and so on; quantities without a name are numbered."""
    return {
        f"{(one.quantity.name or f'{one.quantity.kind} {place}').replace(' ', '_')}_found": one
        for place, one in enumerate(found, start=1)
    }


def _known(
    model: Forecaster,
    has_energy: bool,
    graph: SpacetimeGraph,
    windows: Windows,
    rows: slice,
    paths: Paths,
) -> Iterator[tuple[str, Quantity]]:
    """The quantities that need no search."""
    yield "momentum", momentum(paths)
    if "bivector" in kinds_of(paths):
        yield "angular_momentum", angular_momentum(paths)
    t = windows.trajectories
    system = system_of(t)
    if system is not None and system.potential is not None:
        runs = windows.runs_of(np.arange(rows.start, rows.stop))
        attributes = {name: np.asarray(values[runs]) for name, values in t.attributes.items()}
        couplings = system.coupling(attributes, (len(runs), t.x.shape[2]))
        yield "energy", SystemEnergy(system, torch.from_numpy(np.asarray(couplings)))
    if has_energy:
        like_the_model = next(model.parameters())
        yield (
            "learned_energy",
            LearnedEnergy(model, graph.to(like_the_model.device, like_the_model.dtype)),
        )


def _has_energy(model: Forecaster, windows: Windows) -> bool:
    """Whether the model has a law of motion that conserves an energy, on such data."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        return False
    graph, _ = windows[:1]
    with torch.no_grad():
        return model.energy(graph.to(parameter.device, parameter.dtype).latest()) is not None


def _in_step(windows: Windows) -> bool:
    """Whether target velocities are over the same time step as those used to find quantities.

    Differences are taken between frames as recorded, but within a window between its own frames.
    """
    t = windows.trajectories
    return t.measured_velocities or windows.stride * windows.frame_interval == t.frame_interval


def _when_velocities_were(paths: Paths, graph: SpacetimeGraph, windows: Windows) -> Paths:
    """The paths, with positions moved back by half a step if velocities are differences.

    Such velocities belong to the middle of two frames, see :func:`~.paths.true_paths`.
    """
    if windows.trajectories.measured_velocities:
        return paths
    half = graph.times[:, -2:].diff(dim=1).to(paths.x)[..., None, None] / 2
    return dataclasses.replace(paths, x=paths.x - half * paths.v)


def _from_the_last_frame(
    graph: SpacetimeGraph, states: Forecast, mask: Tensor | None, windows: Windows, pairs: bool
) -> Paths:
    """Paths of the last frame and the target times, (B, 1 + T, N, n)."""
    x = torch.cat([graph.unwrapped_x()[:, -1:].to(states.x), states.x], dim=1)
    v = torch.cat([graph.v[:, -1:].to(states.v), states.v], dim=1)
    last = None if graph.observed is None else graph.observed[:, -1]
    there = both(last, None if mask is None else mask.all(1))
    return Paths.of(graph, x, v, there, attribute_names(windows.trajectories), pairs)


def _finite(values: Tensor) -> Tensor:
    return values[values.isfinite()]  # (infinite forecasts are reported elsewhere)


def _summary(values: Tensor) -> dict[str, float] | None:
    """See :func:`~spacetime_en.metrics.summary`; None if empty."""
    values = _finite(values)
    return summary(values) if len(values) else None


def _medians(values: Tensor) -> list[float | None]:
    """The median at each target time, (P, T) -> T numbers."""
    columns = [_finite(column) for column in values.unbind(1)]
    return [float(column.median()) if len(column) else None for column in columns]
