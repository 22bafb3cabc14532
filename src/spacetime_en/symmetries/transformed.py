"""Groups that transform whole windows: scale, and the direction of time.

Their questions use windows that are read again, divided by their size or played backwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.symmetries.partial import REST, Evidence
from spacetime_en.symmetries.questions import (
    Asked,
    answer,
    bounded,
    constant_fields,
    matrix_fields,
    weighted_fields,
)
from spacetime_en.symmetries.rows import (
    LENGTHS,
    OF_EACH_ROW,
    VELOCITY,
    Array,
    Sampled,
    rows_of_windows,
)

# Of the direction of time, given the state: where starts look unlike ends, a forecaster that is
# good at the ones and bad at the others would pass for a law that knows the direction.
LEAST_OVERLAP = 0.7
LEAST_SIZES = 0.1  # standard deviation of the log size of windows


def scaling(sampled: Sampled, unit: float, identity: bool, centre: Array | None) -> Evidence | None:
    """Does size matter? Windows are divided by their size s; psi: log s, times what moves.

    Args:
        centre: about which the law may depend on position, (n,); None: it does not.
    """
    graph, target = sampled.graph.to(torch.float64), sampled.target.to(torch.float64)
    if graph.box is not None:
        return None
    plain = rows_of_windows(sampled, unit)
    window, count = plain.window, len(graph)
    square = np.square(plain.vectors[:, :LENGTHS]).sum((1, 2))
    total = np.bincount(window, square, count) / np.maximum(np.bincount(window, minlength=count), 1)
    size = np.sqrt(np.where(total > 0, total, 1.0))
    if np.log(size).std() < LEAST_SIZES:
        return None
    by = torch.from_numpy(size)[:, None, None, None]
    scaled = replace(
        sampled,
        graph=graph.replace(x=graph.x / by, v=graph.v / by),
        target=Forecast(target.x / by, target.v / by, target.times, target.mask),
    )
    rows = rows_of_windows(scaled, unit / float(np.median(size)))
    if centre is not None:
        rows = rows.with_place(centre / size[window, None])
    rows = replace(rows, residual=bounded(rows.residual))
    asked = Asked.of(rows, identity)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    log = np.log(size)[window]
    log = (log - log.mean()) / max(float(log.std()), 1e-300)
    weights = np.stack([log, np.square(log)], axis=1)
    fields = [*rows.vectors.swapaxes(0, 1), expected]
    return answer(asked, smoother, [weighted_fields(weights, fields)])


def time_reversal(
    sampled: Sampled, unit: float, identity: bool, centre: Array | None
) -> Evidence | None:
    """Is the law the same when played backwards? psi: the direction of time, times what moves.

    With measured velocities, the state at the last frame forecasts the target, and the target, with
    its velocity reversed, the last frame. Otherwise, three frames h apart are read from both ends.
    Fields M v with any matrix M are part of psi: a magnetic force has no component along v.

    Args:
        centre: about which the law may depend on position, (n,); None: it does not.
    Returns: None if the windows have no such frames.
    """
    both = _both_ways(sampled)
    if both is None:
        return None
    ways = [rows_of_windows(way, unit) for way in both]
    if len(ways[0]) != len(ways[1]):
        return None
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(way, name) for way in ways]) for name in OF_EACH_ROW
    }
    rows = replace(ways[0], **joined)
    if centre is not None:
        rows = rows.with_place(centre)
    rows = replace(rows, residual=bounded(rows.residual))
    asked = Asked.of(rows, identity)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    sign = np.repeat([1.0, -1.0], len(ways[0]))[:, None]
    of_velocity = matrix_fields(rows.vectors[:, VELOCITY]).swapaxes(0, 1)
    fields = [*constant_fields(expected), *of_velocity, expected]
    return answer(asked, smoother, [weighted_fields(sign, fields)], LEAST_OVERLAP)


def _both_ways(sampled: Sampled) -> tuple[Sampled, Sampled] | None:
    """One-frame windows with one target, forwards and backwards."""
    graph, target = sampled.graph.unwrapped(), sampled.target
    if sampled.measured:
        forward = _one_frame(graph, graph.x[:, -1], graph.v[:, -1])
        backward = _one_frame(graph, target.x[:, -1], -target.v[:, -1])
        ends = target.x[:, -1:], graph.x[:, -1:]
        speeds = target.v[:, -1:], -graph.v[:, -1:]
        where = target.mask
    else:
        found = _frames_apart(graph)
        if found is None:
            return None
        frame, place = found
        h = graph.horizon[:, place, None, None]
        here, before, after = graph.x[:, -1], graph.x[:, frame], target.x[:, place]
        graph = graph.replace(horizon=graph.horizon[:, place : place + 1])
        forward = _one_frame(graph, here, (here - before) / h)
        backward = _one_frame(graph, here, (here - after) / h)
        ends = after[:, None], before[:, None]
        speeds = forward.v, backward.v
        where = None if target.mask is None else target.mask[:, place : place + 1]
    mask = None if where is None else where[:, -1:]
    if graph.observed is not None:
        there = graph.observed.all(1, keepdim=True)
        mask = there if mask is None else mask & there
    pairs = zip((forward, backward), ends, speeds, strict=True)
    ways = [
        replace(sampled, graph=way, target=Forecast(x, v, way.horizon[:, -1:], mask))
        for way, x, v in pairs
    ]
    if mask is not None:  # both ways see the same nodes
        ways = [way.seen(mask) for way in ways]
    return ways[0], ways[1]


def _frames_apart(graph: SpacetimeGraph) -> tuple[int, int] | None:
    """A frame and a target equally far from the last frame, and as far as possible."""
    since, ahead = graph.since.to(graph.horizon), graph.horizon
    for place in reversed(range(ahead.shape[1])):
        for frame in range(graph.x.shape[1] - 1):
            if torch.allclose(since[:, frame], ahead[:, place], rtol=1e-4):
                return frame, place
    return None


def _one_frame(graph: SpacetimeGraph, x: torch.Tensor, v: torch.Tensor) -> SpacetimeGraph:
    """The last frame of windows with other positions and velocities, (B, N, n)."""
    last = torch.full((len(graph),), graph.x.shape[1] - 1)
    frame = graph.frame(last, graph.horizon[:, -1:])
    return frame.replace(x=x[:, None], v=v[:, None])
