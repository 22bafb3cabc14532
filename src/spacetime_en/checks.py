"""Check the values of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from spacetime_en._util.errors import InputError

if TYPE_CHECKING:
    from spacetime_en.graph import SpacetimeGraph


def check_values(graph: SpacetimeGraph) -> None:
    """Refuse values that would silently turn a forecast into NaN."""
    observed = graph.observed
    if observed is not None and not (there := observed.flatten(1).any(1)).all():
        empty = int((~there).nonzero()[0])
        raise InputError(f"observed: graph {empty} of the batch has no True entry.")
    for name in ("x", "v", "features"):
        value = getattr(graph, name)
        if value is None:
            continue
        bad = ~value.isfinite().all(-1)  # (B, L, N)
        if observed is not None:
            bad = bad & observed
        if bad.any():
            b, frame, node = bad.nonzero()[0].tolist()
            raise InputError(
                f"{name}: {int(bad.sum())} node(s) hold NaN or infinite values, the first at "
                f"graph {b}, frame {frame}, node {node}; mend them, or say in observed which "
                "nodes were there in which frames."
            )
    if graph.neighbours is not None:
        N = graph.x.shape[2]
        outside = (graph.neighbours < -1) | (graph.neighbours >= N)
        if outside.any():
            raise InputError(
                f"neighbours: found node {int(graph.neighbours[outside][0])}, expected 0 to "
                f"{N - 1} (or -1 for an unused place)."
            )
    for name in ("times", "horizon", "box", "up"):
        value = getattr(graph, name)
        if value is not None and not value.isfinite().all():
            raise InputError(f"{name}: expected finite numbers, found NaN or infinity.")
    if graph.edge_attr is not None:
        bad = ~graph.edge_attr.isfinite().all(-1) & graph.edge_mask
        if bad.any():
            b, _, node, k = bad.nonzero()[0].tolist()
            raise InputError(
                f"edge_attr: expected finite numbers, found NaN or infinity, the first at "
                f"graph {b}, node {node}, neighbour {k}."
            )
    if (graph.horizon < 0).any():
        raise InputError(f"horizon: expected a time ahead, found {float(graph.horizon.min())}.")
    if (graph.horizon.diff(dim=1) <= 0).any():
        raise InputError("horizon: expected the target times in increasing order.")
    if graph.box is not None and (torch.linalg.det(graph.box).abs() == 0).any():
        raise InputError("box: expected a cell with a volume, found one of volume zero.")
    # A missing frame takes the latest time before it, so that only observed ones can fail.
    times, frames = graph.times, None if observed is None else observed.any(2)  # (B, L)
    if frames is not None:
        times = times.masked_fill(~frames, -torch.inf).cummax(1).values
    later = times.diff(dim=1) > 0
    if frames is not None:
        later = later | ~frames[:, 1:]
    if not later.all():
        raise InputError("times: expected the observed frames in increasing order of time.")
