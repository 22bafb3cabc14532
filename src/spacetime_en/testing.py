"""Check that a model has the symmetries it should: for ours, and for any model of your own.

A model here is any callable from :class:`~spacetime_en.graph.SpacetimeGraph` to
:class:`~spacetime_en.graph.Forecast`::

    from spacetime_en.testing import assert_equivariant
    assert_equivariant(model, graph)

Each check compares model(g . graph) with g . model(graph) for random group elements g. Errors are
relative: those of positions to max |x - centroid|, those of velocities to max |v|, both of the
forecast. A model that forecasts nothing but noise would be measured against that noise: look at
the size of the forecast too.

The model is called in the mode it is in. In train mode every call starts from the same random
seed, and the permutation check switches dropout off: a dropout mask belongs to a place in
memory, not to a node, so that permutations then commute with it only in distribution.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en import geometry
from spacetime_en.collation import collate
from spacetime_en.graph import Forecast, SpacetimeGraph

Model = Callable[[SpacetimeGraph], Forecast]

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


class EquivarianceErrors(NamedTuple):
    """The largest relative error under each group; about 1 or more means no symmetry at all."""

    translation: float
    rotation: float
    permutation: float


def equivariance_errors(
    model: Model, graph: SpacetimeGraph, *, seed: int = 0, max_translation: float = 1e3
) -> EquivarianceErrors:
    """Measure how far a model is from equivariance.

    Args:
        model: any callable from graph to forecast.
        graph: where to measure.
        seed: of the random group elements.
        max_translation: the largest component of a translation.
    """
    return EquivarianceErrors(
        translation_error(model, graph, seed=seed, max_translation=max_translation),
        rotation_error(model, graph, seed=seed),
        permutation_error(model, graph, seed=seed),
    )


def translation_error(
    model: Model, graph: SpacetimeGraph, *, seed: int = 0, max_translation: float = 1e3
) -> float:
    """The relative error under x -> x + b, for the largest and for a smaller b."""
    generator = torch.Generator().manual_seed(seed)
    errors = []
    for scale in (max_translation, 1.0):
        b = geometry.random_translation(graph.x.shape[-1], scale, generator).to(graph.x)
        moved = graph.translate(b)
        # Moved there and back: the rounding of x + b is not the model's fault.
        back = _call(model, moved.translate(-b))
        errors.append(_error(_call(model, moved), back.translate(b), graph.node_mask))
    return _worst(*errors)


def rotation_error(model: Model, graph: SpacetimeGraph, *, seed: int = 0) -> float:
    """The relative error under a rotation and under a reflection."""
    generator = torch.Generator().manual_seed(seed)
    n = graph.x.shape[-1]
    here = _call(model, graph)
    return _worst(
        *(
            _error(_call(model, graph.rotate(q)), here.rotate(q), graph.node_mask)
            for q in (
                geometry.random_rotation(n, generator),
                geometry.random_reflection(n, generator),
            )
        )
    )


def permutation_error(model: Model, graph: SpacetimeGraph, *, seed: int = 0) -> float:
    """The relative error under a relabelling of the nodes."""
    generator = torch.Generator().manual_seed(seed)
    p = geometry.random_permutation(graph.x.shape[2], generator).to(graph.x.device)
    errors = []
    with _without_dropout(model):
        here = _call(model, graph)
        for relabel in (p, torch.arange(len(p), device=p.device).roll(1)):  # the second moves all
            there = graph.permute(relabel)
            errors.append(_error(_call(model, there), here.permute(relabel), there.node_mask))
    return _worst(*errors)


def assert_equivariant(
    model: Model,
    graph: SpacetimeGraph,
    *,
    tolerance: float | None = None,
    seed: int = 0,
    max_translation: float = 1e3,
) -> None:
    """Fail unless the model is equivariant to translations, rotations, reflections, permutations.

    Args:
        model: any callable from graph to forecast.
        graph: where to check; in float64 the check is sharp.
        tolerance: on the relative error; 1e-10 in float64 and 1e-4 in float32 by default.
        seed: of the random group elements.
        max_translation: the largest component of a translation.
    """
    assert_translation_equivariant(
        model, graph, tolerance=tolerance, seed=seed, max_translation=max_translation
    )
    assert_rotation_equivariant(model, graph, tolerance=tolerance, seed=seed)
    assert_permutation_equivariant(model, graph, tolerance=tolerance, seed=seed)


def assert_translation_equivariant(
    model: Model,
    graph: SpacetimeGraph,
    *,
    tolerance: float | None = None,
    seed: int = 0,
    max_translation: float = 1e3,
) -> None:
    """Fail unless translating the graph translates the forecast and keeps its velocities."""
    error = translation_error(model, graph, seed=seed, max_translation=max_translation)
    _judge("translation", error, graph, tolerance)


def assert_rotation_equivariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless rotating or reflecting the graph does the same to the forecast."""
    _judge("rotation", rotation_error(model, graph, seed=seed), graph, tolerance)


def assert_permutation_equivariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless relabelling the nodes of the graph relabels the forecast."""
    _judge("permutation", permutation_error(model, graph, seed=seed), graph, tolerance)


def assert_padding_invariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None
) -> None:
    """Fail unless each graph's forecast is the same alone and padded in a larger batch.

    The batch also holds graphs with one node and one frame more, so that masks are at work and
    a leak from graph to graph would show.
    """
    larger = _one_larger(graph)
    with _without_dropout(model):
        batch = _call(model, collate([graph, larger]))
        alone = _call(model, graph)
    N = graph.x.shape[2]
    inside = Forecast(batch.x[: len(graph), :N], batch.v[: len(graph), :N])
    _judge("padding", _error(inside, alone, graph.node_mask), graph, tolerance)


def _one_larger(graph: SpacetimeGraph) -> SpacetimeGraph:
    """`graph` with its last node and its last frame repeated."""
    _, L, N, _ = graph.x.shape
    nodes, frames = [*range(N), N - 1], [*range(L), L - 1]
    fields = dict(graph.fields())
    for name in ("x", "v", "features"):
        if name in fields:
            fields[name] = fields[name][:, frames][:, :, nodes]
    for name in ("neighbours", "edge_attr"):
        if name in fields:
            value = fields[name][:, :, nodes]
            fields[name] = value if value.shape[1] == 1 else value[:, frames]
    if graph.neighbours is None and "edge_attr" in fields:
        fields["edge_attr"] = fields["edge_attr"][:, :, :, nodes]
    if "node_mask" in fields:
        fields["node_mask"] = fields["node_mask"][:, nodes]
    if "frame_mask" in fields:
        fields["frame_mask"] = fields["frame_mask"][:, frames]
    later = graph.times[:, -1:] + graph.horizon[:, None].abs() + 1
    fields["times"] = torch.cat([graph.times, later], dim=1)
    return SpacetimeGraph._unchecked(fields)


def _judge(what: str, error: float, graph: SpacetimeGraph, tolerance: float | None) -> None:
    if tolerance is None:
        tolerance = TOLERANCE.get(graph.x.dtype, 1e-2)
    if not error <= tolerance:  # (also catches NaN)
        raise AssertionError(
            f"the forecast is not {what} {'invariant' if what == 'padding' else 'equivariant'}: "
            f"relative error {error:.2g}, tolerance {tolerance:.0e} in {graph.x.dtype}."
        )


def _call(model: Model, graph: SpacetimeGraph) -> Forecast:
    """The forecast, random numbers starting from the same state every time."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return model(graph)


def _error(found: Forecast, expected: Forecast, node_mask: Tensor | None) -> float:
    """The larger of the relative errors of positions and velocities, over nodes that exist."""
    if node_mask is None:
        node_mask = torch.ones(expected.x.shape[:2], dtype=torch.bool, device=expected.x.device)
    nodes = node_mask.unsqueeze(-1).to(expected.x.dtype)
    centroid = (expected.x * nodes).sum(1, keepdim=True) / nodes.sum(1, keepdim=True)
    spread = (expected.x - centroid)[node_mask]
    return _worst(
        _relative(found.x[node_mask], expected.x[node_mask], spread),
        _relative(found.v[node_mask], expected.v[node_mask], expected.v[node_mask]),
    )


def _worst(*errors: float) -> float:
    """The largest, and NaN if any is: Python's max would lose it."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def _relative(found: Tensor, expected: Tensor, scale: Tensor) -> float:
    """max |found - expected| / max |scale|; of a forecast of exact zeros, the absolute error."""
    size = float(scale.abs().max())
    return float((found - expected).abs().max()) / (size or 1.0)


@contextmanager
def _without_dropout(model: Model) -> Iterator[None]:
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    active = [m for m in modules if isinstance(m, nn.modules.dropout._DropoutNd) and m.training]
    for module in active:
        module.eval()
    try:
        yield
    finally:
        for module in active:
            module.train()
