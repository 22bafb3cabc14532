"""Paths from single-horizon models: forecast, append the forecast to the window, repeat."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.tensors import as_tensor
from spacetime_en.facts import few_numbers
from spacetime_en.graph import Forecast, SpacetimeGraph, speeds, which_are_speeds

MAX_STEPS = 100_000


def with_times(graph: SpacetimeGraph, times: Tensor | float | list[float]) -> SpacetimeGraph:
    """The graph with other target times: a number, (T,) for all graphs, or (B, T)."""
    horizon = as_tensor("times", times).to(graph.x)
    if horizon.ndim < 2:
        horizon = horizon.reshape(1, -1).expand(len(graph), -1)
    return graph.replace(horizon=horizon)


def rollout(
    model: Callable[[SpacetimeGraph], Forecast],
    graph: SpacetimeGraph,
    times: Tensor | list[float] | None = None,
) -> Forecast:
    """Forecast a path step by step with a model that was trained for one frame step.

    Every forecast becomes the last frame of the next window, and the first frame is dropped.
    Neighbour lists, edge attributes and features stay those of the last frame, except speeds, which
    follow the forecast velocities.

    Args:
        model: forecasts the next frame.
        graph: the window, whose last frames are evenly spaced.
        times: the target times, (T,) or (B, T), whole multiples of the shortest time between frames
            (for single-frame graphs, of the first target time); None: the graph's horizon.
    """
    graph = graph if times is None else with_times(graph, times)
    step, counts = _steps(graph)
    window, oldest = _padding_first(graph.unwrapped()._replace(horizon=step[:, None]))
    states: dict[int, Forecast] = {}
    for k in range(1, counts[-1] + 1):
        forecast = model(window)
        if k in counts:
            states[k] = forecast
        window = _advanced(window, forecast, step, oldest)
    path = [states[k] for k in counts]
    x, v = (torch.cat([getattr(f, name) for f in path], dim=1) for name in ("x", "v"))
    mask = None if graph.present is None else graph.present.unsqueeze(1).expand(x.shape[:3])
    return Forecast(x, v, graph.horizon, mask)


def first_step(graph: SpacetimeGraph, target: Forecast) -> tuple[SpacetimeGraph, Forecast]:
    """Windows with only the first of their targets, which must be one step after the last frame."""
    if graph.horizon.shape[1] > 1 and _steps(graph)[1][0] != 1:
        raise InputError(
            "horizon: this model forecasts several times step by step, and learns the step from "
            f"the first one; expected it at the time between frames, found {graph.horizon[0, 0]:g}."
        )
    first = {name: getattr(target, name) for name in ("x", "v", "times", "mask")}
    first = {name: None if value is None else value[:, :1] for name, value in first.items()}
    return graph._replace(horizon=graph.horizon[:, :1]), Forecast(**first)


def _steps(graph: SpacetimeGraph) -> tuple[Tensor, list[int]]:
    """The time step of each graph, (B,), and the number of steps to each target time."""
    horizon, step = graph.horizon, graph.horizon[:, 0]
    if graph.x.shape[1] > 1:
        gaps = graph.times.diff(dim=1)  # (B, L - 1)
        if graph.observed is not None:  # (times of padded frames are meaningless)
            number = torch.arange(gaps.shape[1], device=gaps.device)
            first, last = _first_frame(graph.observed), graph.last_frame
            padding = (number < first[:, None]) | (number >= last[:, None])
            gaps = gaps.masked_fill(padding, torch.inf)
        gap = gaps.amin(1)
        step = torch.where(gap.isfinite(), gap.to(step), step)
    ratio = horizon / step[:, None]
    counts = ratio.round()
    even = ((ratio - counts).abs() <= 1e-3 * counts.clamp(min=1)).all() and (counts >= 1).all()
    if not even or (counts != counts[:1]).any():
        raise InputError(
            "horizon: this model knows one horizon, and forecasts several times step by step, "
            "which needs whole multiples of the time between frames, found "
            f"{few_numbers(horizon[0].tolist())} with frames {float(step[0]):g} apart; train it "
            "for one frame step, or use a model that reads the horizon, such as set-flow."
        )
    if counts.max() > MAX_STEPS:
        raise InputError(
            f"horizon: expected at most {MAX_STEPS:,} steps, found {counts.max():.3g}."
        )
    return step, counts[0].int().tolist()


def _padding_first(window: SpacetimeGraph) -> tuple[SpacetimeGraph, Tensor | None]:
    """The window with padded frames moved to the front, and the index of its oldest frame, (B,).

    Steps drop the oldest frame, not padding, or a padded window would grow. (None: no padding.)
    """
    if window.observed is None:
        return window, None
    L = window.x.shape[1]
    after = L - 1 - window.last_frame  # (B,)
    order = (torch.arange(L, device=after.device) - after[:, None]) % L
    return window.frames(order), _first_frame(window.observed) + after


def _first_frame(observed: Tensor) -> Tensor:
    """The index of the first frame in which any node was observed, (B, L, N) -> (B,)."""
    return observed.any(2).int().argmax(1)


def _advanced(
    window: SpacetimeGraph, forecast: Forecast, step: Tensor, oldest: Tensor | None
) -> SpacetimeGraph:
    """The window one frame later: the forecast is its last frame, and the oldest is dropped."""
    last = window.latest()  # (B, 1, N, ...)
    changes = {"x": forecast.x, "v": forecast.v, "times": last.times + step[:, None]}
    if window.features is not None:
        assert last.features is not None
        follow = which_are_speeds(window)
        changes["features"] = torch.where(follow, speeds(forecast.v), last.features)
    if window.observed is not None:
        changes["observed"] = window.observed.any(1, keepdim=True)
    for name in ("neighbours", "edge_attr"):
        value = getattr(window, name)
        if value is not None and value.shape[1] > 1:
            changes[name] = getattr(last, name)
    kept = torch.arange(window.x.shape[1] - 1, device=step.device)
    if oldest is None:
        older = {name: getattr(window, name)[:, 1:] for name in changes}
    else:
        rest = window.frames(kept + (kept >= oldest[:, None]))
        older = {name: getattr(rest, name) for name in changes}
    return window._replace(**{k: torch.cat([older[k], t], dim=1) for k, t in changes.items()})
