"""Join graphs of different N and L into one padded batch."""

from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import argument, shortened
from spacetime_en.graph import Forecast, SpacetimeGraph

Pair = tuple[SpacetimeGraph, Forecast]


@overload
def collate(graphs: Sequence[SpacetimeGraph]) -> SpacetimeGraph: ...
@overload
def collate(graphs: Sequence[Pair]) -> Pair: ...
def collate(graphs: Sequence[Any]) -> Any:
    """Pad graphs to common N, L and K, and join them along the batch axis.

    Nodes and frames are padded at the end and masked, so that every graph's forecast (its first
    N nodes) and gradients are the same as alone. Use it as ``collate_fn`` of a DataLoader.

    Args:
        graphs: graphs (or batches) that agree in n, T, d, e, dtype, and in whether they have
            neighbours, a box, and features of their own. Or pairs of a graph and its target, in
            which padded nodes are 0 and do not count.
    Returns: one graph whose batch size is the sum of theirs; for pairs, one pair.
    """
    items = argument("graphs", graphs, Sequence[Any])
    if not items or isinstance(items[0], SpacetimeGraph):
        return _join([argument(f"graph {i}", item, SpacetimeGraph) for i, item in enumerate(items)])
    for i, item in enumerate(items):
        graph, target = argument(f"pair {i}", item, tuple[SpacetimeGraph, Any])
        shape = (len(graph), graph.horizon.shape[1], *graph.x.shape[2:])
        if not isinstance(target, Forecast) or not target.x.shape == target.v.shape == shape:
            raise InputError(
                f"collate: the target of graph {i} should be a Forecast with x and v of shape "
                f"{shape}, found {shortened(target)}."
            )
    batch = _join([graph for graph, _ in items])
    return batch, _join_targets([target for _, target in items], batch.x.shape[2])


def _join_targets(targets: list[Forecast], nodes: int) -> Forecast:
    """Targets padded to N nodes; padded nodes do not count."""
    padded = []
    for target in targets:
        new = (0, nodes - target.x.shape[2])
        mask = target.mask
        if mask is None:
            mask = torch.ones(target.x.shape[:3], dtype=torch.bool, device=target.x.device)
        fields = {
            name: _pad(value, (0, 0), new) if name in ("x", "v", "samples") else value
            for name, value in target.fields().items()
        }
        if target.spread is not None:
            fields["spread"] = _pad(target.spread, new)
        padded.append(fields | {"mask": _pad(mask, new)})
    names = set.intersection(*(set(fields) for fields in padded))
    joined = {name: torch.cat([fields[name] for fields in padded]) for name in names}
    if joined["mask"].all():
        del joined["mask"]
    return Forecast._unchecked(joined)


def _join(graphs: list[SpacetimeGraph]) -> SpacetimeGraph:
    if not graphs:
        raise InputError("collate: expected at least one graph, found none.")
    first = graphs[0]
    for i, graph in enumerate(graphs):
        for (what, have), want in zip(_kind(graph).items(), _kind(first).values(), strict=True):
            if have != want:
                raise InputError(
                    f"collate: graph {i} and graph 0 differ in {what}: {have} and {want}; "
                    "give all graphs the same."
                )
    L = max(graph.x.shape[1] for graph in graphs)
    N = max(graph.x.shape[2] for graph in graphs)
    # (On complete graphs K = N.)
    K = max(N if g.neighbours is None else g.neighbours.shape[-1] for g in graphs)
    varying = {
        name: any(getattr(g, name) is not None and getattr(g, name).shape[1] > 1 for g in graphs)
        for name in ("neighbours", "edge_attr")
    }

    def padded(graph: SpacetimeGraph) -> dict[str, Tensor]:
        B, own_L, own_N = graph.x.shape[:3]
        nodes = (0, N - own_N)
        frames = (0, L - own_L)
        fields = dict(graph.fields())
        observed = graph.observed
        if observed is None:
            observed = torch.ones(B, own_L, own_N, dtype=torch.bool, device=graph.x.device)
        fields["observed"] = _pad(observed, nodes, frames)
        for name in ("x", "v", "features"):
            if name in fields:
                fields[name] = _pad(fields[name], (0, 0), nodes, frames)
        fields["times"] = F.pad(fields["times"], frames)
        for name, channels, fill in (("neighbours", (), -1), ("edge_attr", ((0, 0),), 0)):
            if name in fields:
                value = fields[name]
                if varying[name]:
                    value = value.expand(B, own_L, *value.shape[2:])
                neighbours = (0, K - value.shape[3])
                time = frames if varying[name] else (0, 0)
                fields[name] = _pad(value, *channels, neighbours, nodes, time, fill=fill)
        return fields

    parts = [padded(graph) for graph in graphs]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if joined["observed"].all():
        del joined["observed"]  # nothing was padded: let models take the path without masks
    return SpacetimeGraph._unchecked(joined)


def _kind(graph: SpacetimeGraph) -> dict[str, object]:
    """The properties that all graphs of a batch must share."""
    return {
        "space dimensions n": graph.x.shape[-1],
        "dtype": graph.x.dtype,
        "having features of their own": graph.features is not None,
        "feature width d": graph.feature_width,
        "having edge attributes": graph.edge_attr is not None,
        "edge attribute width e": graph.edge_width,
        "device": graph.x.device,
        "having neighbour lists": graph.neighbours is not None,
        "having a periodic box": graph.box is not None,
        "having an up direction": graph.up is not None,
        "number of target times T": graph.horizon.shape[1],
    }


def _pad(tensor: Tensor, *pairs: tuple[int, int], fill: float = 0) -> Tensor:
    """F.pad with one (before, after) pair per axis, the last axis first."""
    return F.pad(tensor, [size for pair in pairs for size in pair], value=fill)
