"""To and from PyTorch Geometric (the extra ``pyg``).

PyTorch Geometric puts nodes first, so a moving graph is a ``Data`` object with

    pos (N, L, n), vel (N, L, n), x (N, L, d) node features, observed (N, L), edge_index (2, E),
    edge_attr (E, e), time (L,), horizon (1, T), cell (1, n, n)

where (N, n) and (N, d) stand for a single frame, or for features constant in time. Only ``pos``
is required. Without ``vel``, velocities are differences of frames; without ``edge_index``, the
graph is complete. Messages flow from ``edge_index[0]`` to ``edge_index[1]``, as is PyTorch
Geometric's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.tensors import as_tensor
from spacetime_en.collation import collate
from spacetime_en.graph import SpacetimeGraph

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_pyg(data: Data | Sequence[Data]) -> SpacetimeGraph:
    """One ``Data``, a ``Batch``, or a sequence of ``Data`` as one batch of graphs."""
    if hasattr(data, "to_data_list"):
        data = data.to_data_list()
    items = list(data) if isinstance(data, Sequence) else [data]
    for item in items:
        if not hasattr(item, "edge_index"):
            raise InputError(
                f"data: expected Data of PyTorch Geometric, found a {type(item).__name__}."
            )
    # Complete only if all are: the graphs of a batch either all have neighbour lists or none has.
    complete = all(_is_complete(item) for item in items)
    return collate([_graph(item, complete) for item in items])


def _graph(data: Data, complete: bool) -> SpacetimeGraph:
    pos = _positions(data)
    x = _frames_first(pos)
    fields: dict[str, Any] = {}
    if data.x is not None:
        # Two axes: constant in time. Three: one row per frame.
        fields["features"] = data.x[None] if data.x.ndim == 2 else _frames_first(data.x)
    if data.edge_index is None and data.edge_attr is not None:
        raise InputError(
            "edge_attr: needs edge_index, which says to which edges the attributes belong."
        )
    if data.edge_index is None and not complete:
        everyone = torch.cartesian_prod(*[torch.arange(len(pos), device=pos.device)] * 2)
        data = data.clone()
        data.edge_index = everyone[everyone[:, 0] != everyone[:, 1]].T
    if data.edge_index is not None:
        attr = data.edge_attr
        if attr is not None and attr.ndim == 1:
            attr = attr[:, None]
        index, rows = neighbours_from_edge_index(data.edge_index, pos.shape[0], attr)
        if not complete:
            fields["neighbours"] = index
        elif attr is not None:
            source, target = data.edge_index
            rows = attr.new_zeros(pos.shape[0], pos.shape[0], attr.shape[-1])
            rows[target, source] = attr
        if rows is not None:
            fields["edge_attr"] = rows[None]
    if getattr(data, "observed", None) is not None:
        fields["observed"] = as_tensor("observed", data.observed).T[None]
    for name, field in (("time", "times"), ("horizon", "horizon"), ("cell", "box"), ("up", "up")):
        if getattr(data, name, None) is not None:
            fields[field] = as_tensor(name, getattr(data, name))
    if getattr(data, "vel", None) is None:
        if pos.ndim == 2 or pos.shape[1] < 2:
            raise InputError("vel: one frame has no differences to take velocities from; give vel.")
        return SpacetimeGraph.from_positions(x, **fields)
    return SpacetimeGraph(x, _frames_first(data.vel), **fields)


def _positions(data: Data) -> Tensor:
    """``data.pos``; refused if it is missing or has another shape."""
    pos = getattr(data, "pos", None)
    if pos is None or pos.ndim not in (2, 3):
        shape = None if pos is None else tuple(pos.shape)
        raise InputError(f"pos: expected shape (N, L, n) or (N, n), found {shape}.")
    return pos  # type: ignore[no-any-return]


def _check_edge_index(edge_index: Tensor, nodes: int) -> None:
    """Refuse an `edge_index` that is not a list of edges between `nodes` nodes."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"edge_index: expected shape (2, E), found {tuple(edge_index.shape)}.")
    if edge_index.is_floating_point():
        raise InputError(f"edge_index: expected whole numbers, found {edge_index.dtype}.")
    outside = (edge_index < 0) | (edge_index >= nodes)
    if outside.any():
        raise InputError(
            f"edge_index: found node {int(edge_index[outside][0])}, expected 0 to {nodes - 1}."
        )


def _is_complete(data: Data) -> bool:
    """Whether every node is joined to every other, once and in both directions."""
    if data.edge_index is None:
        return True
    nodes = _positions(data).shape[0]
    _check_edge_index(data.edge_index, nodes)
    source, target = data.edge_index
    if len(source) != nodes * (nodes - 1) or bool((source == target).any()):
        return False
    return len((source * nodes + target).unique()) == len(source)


def _frames_first(nodes_first: Tensor) -> Tensor:
    """(N, L, c) or (N, c) -> (1, L, N, c)."""
    tensor = nodes_first if nodes_first.ndim == 3 else nodes_first[:, None]
    return tensor.transpose(0, 1)[None]


def neighbours_from_edge_index(
    edge_index: Tensor, nodes: int, edge_attr: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Turn a list of edges into neighbour lists.

    Args:
        edge_index: (2, E), sources j in row 0 and targets i in row 1.
        nodes: the number of nodes N.
        edge_attr: (E, e) or None.
    Returns: neighbours (N, K), padded with -1, K the largest number of neighbours; and the
        attributes in the same places, (N, K, e), or None.
    """
    _check_edge_index(edge_index, nodes)
    source, target = edge_index
    order = target.argsort(stable=True)
    source, target = source[order], target[order]
    degree = torch.bincount(target, minlength=nodes)
    start = degree.cumsum(0) - degree
    place = torch.arange(len(target), device=target.device) - start[target]
    shape = (nodes, int(degree.max()))
    neighbours = torch.full(shape, -1, dtype=torch.int64, device=edge_index.device)
    neighbours[target, place] = source
    if edge_attr is None:
        return neighbours, None
    if edge_attr.ndim != 2 or len(edge_attr) != len(source):
        raise InputError(
            f"edge_attr: expected shape (E, e) with E={len(source)}, "
            f"found {tuple(edge_attr.shape)}."
        )
    rows = edge_attr.new_zeros(*shape, edge_attr.shape[-1])
    rows[target, place] = edge_attr[order]
    return neighbours, rows


def to_pyg(graph: SpacetimeGraph) -> list[Data]:
    """One ``Data`` per graph of the batch, without padding.

    ``Data`` cannot hold neighbour lists and edge attributes that change from frame to frame; they
    are refused.
    """
    data_type = require("torch_geometric.data", "pyg").Data
    for name in ("neighbours", "edge_attr"):
        value = getattr(graph, name)
        if value is not None and value.shape[1] > 1:
            raise InputError(f"{name}: changes from frame to frame, which Data cannot hold.")
    return [data_type(**_fields(graph[b])) for b in range(len(graph))]


def _fields(graph: SpacetimeGraph) -> dict[str, Tensor]:
    """The attributes of ``Data`` for a batch of one graph."""
    seen = graph.observed
    frames = slice(None) if seen is None else seen[0].any(1)
    nodes = slice(None) if seen is None else seen[0].any(0)

    def nodes_first(tensor: Tensor) -> Tensor:
        return tensor[0, frames][:, nodes].transpose(0, 1)

    fields = {
        "pos": nodes_first(graph.x),
        "vel": nodes_first(graph.v),
        "time": graph.times[0, frames],
        "horizon": graph.horizon,
    }
    if graph.features is not None:
        fields["x"] = nodes_first(graph.features)
    if seen is not None and not (there := nodes_first(seen)).all():
        fields["observed"] = there
    if graph.box is not None:
        fields["cell"] = graph.box
    if graph.up is not None:
        fields["up"] = graph.up

    if graph.neighbours is None and graph.edge_attr is None:
        return fields  # complete: no list needed
    # (Also between nodes never observed in the same frame: some models extrapolate them.)
    edges = graph.latest().edge_mask[0, 0]
    target, place = edges.nonzero(as_tuple=True)  # each (E,)
    source = place if graph.neighbours is None else graph.neighbours[0, 0][target, place]
    renumbered = torch.arange(graph.x.shape[2], device=graph.x.device)
    if seen is not None:
        renumbered = seen[0].any(0).cumsum(0) - 1
    fields["edge_index"] = renumbered[torch.stack([source, target])]
    if graph.edge_attr is not None:
        fields["edge_attr"] = graph.edge_attr[0, 0][target, place]
    return fields
