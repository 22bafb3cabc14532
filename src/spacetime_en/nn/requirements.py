"""What models require of graphs: each check refuses an unfit graph in one sentence."""

from __future__ import annotations

import torch

from spacetime_en._util.errors import InputError
from spacetime_en.graph import SpacetimeGraph


def check_widths(graph: SpacetimeGraph, features: int, edge_features: int) -> None:
    """Refuse a graph whose d or e is not what the model was built for."""
    if graph.feature_width != features:
        raise InputError(
            f"features: the model was built for {features} per node, the graph has "
            f"{graph.feature_width}; build it with features={graph.feature_width} or like=graph."
        )
    if graph.edge_width != edge_features:
        raise InputError(
            f"edge_attr: the model was built for {edge_features} per edge, the graph has "
            f"{graph.edge_width}; build it with edge_features={graph.edge_width} or like=graph."
        )


def check_dims(graph: SpacetimeGraph, dims: int) -> None:
    """Refuse a graph in another number of space dimensions than the model's."""
    n = graph.x.shape[-1]
    if n != dims:
        raise InputError(
            f"x: this model is tied to n = {dims} space dimensions, the graph has {n}; "
            f"build it with dims={n}."
        )


def check_nodes(graph: SpacetimeGraph, nodes: int) -> None:
    """Refuse a graph with another number of nodes than the model's, padded ones included."""
    N = graph.x.shape[2]
    if nodes != N:
        raise InputError(
            f"x: this model is tied to N = {nodes} nodes, the graph has {N}; "
            f"build it with nodes={N}."
        )
    check_no_padding(graph, f"this model is tied to N = {nodes} nodes")


def check_frames(graph: SpacetimeGraph, frames: int) -> None:
    """Refuse a graph with another number of frames than the model's, or with gaps."""
    L = graph.x.shape[1]
    if frames != L or graph.frame_mask is not None:
        gaps = " with gaps" if graph.frame_mask is not None else ""
        raise InputError(
            f"x: this model is tied to {frames} frames, all of them observed, the graph has "
            f"{L}{gaps}; build it with frames={L}."
        )


def check_no_padding(graph: SpacetimeGraph, why: str) -> None:
    """Refuse graphs with padded nodes."""
    # (While tracing, the mask has no values to look at.)
    if graph.node_mask is not None and not torch.compiler.is_compiling():
        counts = graph.node_mask.sum(1)
        if (counts != graph.x.shape[2]).any():
            raise InputError(
                f"node_mask: {why}, but a graph of the batch has {int(counts.min())} of "
                f"{graph.x.shape[2]}."
            )


def check_horizon(graph: SpacetimeGraph) -> None:
    """Refuse a horizon of 0, where velocities are displacements divided by the horizon."""
    if not torch.compiler.is_compiling() and (graph.horizon == 0).any():
        raise InputError("horizon: this model needs a time ahead, found 0.")


def check_no_box(graph: SpacetimeGraph, what: str) -> None:
    """Refuse a periodic box, for models whose forecast depends on the image a node is stored in."""
    if graph.box is not None:
        raise InputError(f"box: {what}, and a periodic box has no centre; leave the box out.")


def check_complete(graph: SpacetimeGraph, what: str) -> None:
    """Refuse neighbour lists, for models of complete graphs."""
    if graph.neighbours is not None:
        raise InputError(f"neighbours: {what} needs a complete graph; leave neighbours out.")


def check_static(graph: SpacetimeGraph, what: str) -> None:
    """Refuse neighbour lists that change from frame to frame."""
    if graph.neighbours is not None and graph.neighbours.shape[1] > 1:
        raise InputError(
            f"neighbours: {what} follows each edge over time and needs one list for all frames, "
            "found one per frame."
        )
