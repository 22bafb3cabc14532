"""Requirements of models on graphs: each check refuses an unsuitable graph with a clear message."""

from __future__ import annotations

import torch

from spacetime_en._util.errors import InputError
from spacetime_en.graph import SpacetimeGraph

_ANY_NODES = "a model of any number of nodes, such as egnn, or set-2 without `named`"


def check_widths(graph: SpacetimeGraph, features: int, edge_features: int) -> None:
    """Refuse a graph whose d or e differs from the model's."""
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


def check_node_features(graph: SpacetimeGraph, expected: int) -> None:
    """Refuse a graph whose features differ in number from the model's; speeds do not count."""
    width = 0 if graph.features is None else graph.feature_width
    if width != expected:
        raise InputError(
            f"features: the model was built for {expected or 'none'} per node, the graph has "
            f"{width or 'none'}; build it with node_features={width} or like=graph."
        )


def check_dims(graph: SpacetimeGraph, dims: int) -> None:
    """Refuse a graph whose number of space dimensions differs from the model's."""
    n = graph.x.shape[-1]
    if n != dims:
        raise InputError(
            f"x: this model is tied to n = {dims} space dimensions, the graph has {n}; "
            f"build it with dims={n}."
        )


def check_nodes(graph: SpacetimeGraph, nodes: int) -> None:
    """Refuse a graph whose number of nodes differs from the model's, or with padded nodes."""
    N = graph.x.shape[2]
    if nodes != N:
        raise InputError(
            f"x: this model is tied to N = {nodes} nodes, the graph has {N}; build it with "
            f"nodes={N}, or, where nodes come and go, take {_ANY_NODES}."
        )
    check_no_padding(graph, f"this model is tied to N = {nodes} nodes")


def check_length(
    graph: SpacetimeGraph,
    frames: int,
    model: str = "this model is tied to",
    instead: str | None = None,
) -> None:
    """Refuse a graph whose number of frames differs from the model's.

    Args:
        frames: number L of frames of the model.
        model: begins the message.
        instead: what to do about it.
    """
    L = graph.x.shape[1]
    if frames != L:
        instead = instead or f"build it with frames={L}"
        raise InputError(f"x: {model} {frames} frames, the graph has {L}; {instead}.")


def check_last_frame(graph: SpacetimeGraph) -> None:
    """Refuse a graph without an observed node in the last frame."""
    if graph.observed is not None and not torch.compiler.is_compiling():
        seen = graph.observed[:, -1].any(1)
        if not seen.all():
            raise InputError(
                "observed: this model starts at the last frame, in which no node of graph "
                f"{int((~seen).nonzero()[0])} was observed; leave that frame out."
            )


def check_frames(graph: SpacetimeGraph, frames: int) -> None:
    """Refuse a graph whose number of frames differs from the model's, or with gaps."""
    check_length(graph, frames)
    # (While tracing, the mask has no values.)
    if graph.observed is not None and not torch.compiler.is_compiling():
        gaps = (graph.observed != graph.observed.any(1, keepdim=True)).any(1)  # (B, N)
        if gaps.any():
            b, node = gaps.nonzero()[0].tolist()
            raise InputError(
                f"observed: this model needs every node in all {frames} frames, but node {node} of "
                f"graph {b} is missing in some; fill its gaps, leave it out, or take a model that "
                "takes gaps, such as set-2 or egnn."
            )


def check_no_padding(graph: SpacetimeGraph, why: str) -> None:
    """Refuse graphs with padded nodes."""
    if graph.present is not None and not torch.compiler.is_compiling():
        counts = graph.present.sum(1)
        if (counts != graph.x.shape[2]).any():
            raise InputError(
                f"observed: {why}, but a graph of the batch has {int(counts.min())} of "
                f"{graph.x.shape[2]}; take {_ANY_NODES}."
            )


def check_whole_frames(graph: SpacetimeGraph, why: str) -> None:
    """Refuse graphs with frames in which only some of the nodes were observed."""
    if graph.observed is None or torch.compiler.is_compiling():
        return
    if (graph.observed != graph.observed.any(2, keepdim=True)).any():
        raise InputError(
            f"observed: {why}, but a node is missing in a frame in which others are there; fill "
            "the gaps, or take a model that takes them, such as set-2 or egnn."
        )


def check_target_times(graph: SpacetimeGraph, targets: int) -> None:
    """Refuse a graph whose number of target times differs from the model's."""
    T = graph.horizon.shape[1]
    if targets != T:
        raise InputError(
            f"horizon: this model has weights for {targets} target time{'s' * (targets > 1)}, the "
            f"graph asks for {T}; build it with targets={T} and fit it to these (train it with "
            "their target_steps), or use a model that reads the horizon, such as set-flow."
        )


def check_horizon(graph: SpacetimeGraph) -> None:
    """Refuse a horizon of 0, where velocities are displacements divided by the horizon."""
    if not torch.compiler.is_compiling() and (graph.horizon == 0).any():
        raise InputError("horizon: this model needs a time ahead, found 0.")


def check_no_box(graph: SpacetimeGraph, what: str) -> None:
    """Refuse a periodic box, for models whose forecast depends on the periodic image of a node."""
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
