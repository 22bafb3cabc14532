"""Random observation errors, drawn anew in each training step.

Tracks from one camera may be perfectly smooth where those from another jitter. A model trained only
on smooth tracks extrapolates from high derivatives, and hence from the noise. Errors of many sizes
teach it to judge how smooth a track is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en.graph import SpacetimeGraph, newest_observed, speeds, which_are_speeds


def typical_step(graph: SpacetimeGraph) -> float:
    """The root mean square displacement of a node from one observation to the next."""
    before = _previous(graph)
    step = (graph.x - _taken(graph.x, before))[before >= 0].square().sum(-1)
    return float(step.mean().sqrt()) if len(step) else 0.0


def jittered(graph: SpacetimeGraph, most: float) -> SpacetimeGraph:
    """Add independent Gaussian errors to the observed positions, of one size per window.

    The size is `most` u^3 with u uniform in [0, 1]: mostly small, and sometimes large.
    Velocities are taken to be differences of observations, and change with them, as do features
    that are speeds.
    """
    B, L, *_ = graph.x.shape
    size = most * torch.rand(B, 1, 1, 1, device=graph.x.device, dtype=graph.x.dtype) ** 3
    e, unseen = size * torch.randn_like(graph.x), size * torch.randn_like(graph.x)  # (B, L, N, n)
    before = _previous(graph)
    known = (before >= 0).unsqueeze(-1)
    since = graph.since[..., None, None].to(e).expand(*before.shape, 1)  # (B, L, N, 1), decreasing
    # A node's first velocity in a window comes from an observation before the window.
    spacing = since[:, :1] / max(1, L - 1)
    passed = torch.where(known, _taken(since, before) - since, spacing)
    slope = (e - torch.where(known, _taken(e, before), unseen)) / passed
    x, v = graph.x + e, graph.v + slope
    if graph.observed is not None:
        there = graph.observed.unsqueeze(-1)
        x, v = torch.where(there, x, graph.x), torch.where(there, v, graph.v)
    seen = graph._replace(x=x, v=v)
    if graph.features is None:
        return seen
    return seen._replace(features=torch.where(which_are_speeds(graph), speeds(v), graph.features))


def _previous(graph: SpacetimeGraph) -> Tensor:
    """The frame of a node's previous observation at each observation, else -1, (B, L, N)."""
    if graph.observed is None:
        frame = torch.arange(graph.x.shape[1], device=graph.x.device)[None, :, None]
        return (frame - 1).expand(graph.x.shape[:3])
    newest = newest_observed(graph.observed)
    before = torch.cat([torch.full_like(newest[:, :1], -1), newest[:, :-1]], dim=1)
    return before.masked_fill(~graph.observed, -1)


def _taken(t: Tensor, frame: Tensor) -> Tensor:
    """Values of each node in other frames, (B, L, N, c) by (B, L, N); frame 0 for -1."""
    return t.gather(1, frame.clamp(min=0).unsqueeze(-1).expand(-1, -1, -1, t.shape[-1]))
