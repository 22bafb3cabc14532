"""Equivariance checks, for the models of this package and for your own.

A model here is any callable from :class:`~spacetime_en.graph.SpacetimeGraph` to
:class:`~spacetime_en.graph.Forecast`::

    from spacetime_en.testing import assert_equivariant
    assert_equivariant(model, graph)

Each check compares model(g . graph) with g . model(graph) for random group elements g. Errors are
relative: position errors to max |x - centroid|, velocity errors to max |v|, both of the forecast.
The error of a model whose forecast is nothing but rounding error is therefore of order one: check
the magnitude of the forecast, too.

The model is called in its current mode. In train mode every call starts from the same random
seed, and the permutation check disables dropout: a dropout mask belongs to a position in memory,
not to a node, so dropout commutes with permutations only in distribution.
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
    """The largest relative error under each group; an error of order one means no symmetry."""

    translation: float
    rotation: float
    permutation: float


def equivariance_errors(
    model: Model, graph: SpacetimeGraph, *, seed: int = 0, max_translation: float = 1e3
) -> EquivarianceErrors:
    """Measure how far a model is from equivariance.

    Args:
        model: any callable from graph to forecast.
        graph: the input at which to measure.
        seed: seed of the random group elements.
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
    """The relative error under x -> x + b, for the largest b and for one a thousandth of it."""
    generator = torch.Generator().manual_seed(seed)
    errors = []
    for scale in (max_translation, max_translation / 1e3):
        b = geometry.random_translation(graph.x.shape[-1], scale, generator).to(graph.x)
        moved = graph.translate(b)
        # Translated there and back, because rounding of x + b is not the model's error.
        back = _call(model, moved.translate(-b))
        errors.append(_error(_call(model, moved), back.translate(b)))
    return _worst(*errors)


def rotation_error(model: Model, graph: SpacetimeGraph, *, seed: int = 0) -> float:
    """The relative error under a rotation and under a reflection."""
    generator = torch.Generator().manual_seed(seed)
    n = graph.x.shape[-1]
    here = _call(model, graph)
    turns = geometry.random_rotation(n, generator), geometry.random_reflection(n, generator)
    pairs = ((_call(model, graph.rotate(q)), here.rotate(q)) for q in turns)
    return _worst(*(_error(there, turned) for there, turned in pairs))


def permutation_error(model: Model, graph: SpacetimeGraph, *, seed: int = 0) -> float:
    """The relative error under a relabelling of the nodes."""
    generator = torch.Generator().manual_seed(seed)
    p = geometry.random_permutation(graph.x.shape[2], generator).to(graph.x.device)
    orders = (p, torch.arange(len(p), device=p.device).roll(1))  # the second moves every node
    with _without_dropout(model):
        here = _call(model, graph)
        pairs = [(_call(model, graph.permute(order)), here.permute(order)) for order in orders]
    return _worst(*(_error(there, relabelled) for there, relabelled in pairs))


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
        graph: the input at which to check; in float64 the check is sharp.
        tolerance: on the relative error; by default 1e-10 in float64 and 1e-4 in float32.
        seed: seed of the random group elements.
        max_translation: the largest component of a translation.
    """
    errors = equivariance_errors(model, graph, seed=seed, max_translation=max_translation)
    for what, error in errors._asdict().items():
        _assert_small(what, error, graph, tolerance)


def assert_translation_equivariant(
    model: Model,
    graph: SpacetimeGraph,
    *,
    tolerance: float | None = None,
    seed: int = 0,
    max_translation: float = 1e3,
) -> None:
    """Fail unless translating the graph translates the forecast and leaves velocities unchanged."""
    error = translation_error(model, graph, seed=seed, max_translation=max_translation)
    _assert_small("translation", error, graph, tolerance)


def assert_rotation_equivariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless rotating or reflecting the graph does the same to the forecast."""
    _assert_small("rotation", rotation_error(model, graph, seed=seed), graph, tolerance)


def assert_permutation_equivariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless relabelling the nodes of the graph relabels the forecast."""
    _assert_small("permutation", permutation_error(model, graph, seed=seed), graph, tolerance)


def assert_padding_invariant(
    model: Model, graph: SpacetimeGraph, *, tolerance: float | None = None
) -> None:
    """Fail unless each graph's forecast is the same alone and padded in a larger batch.

    The batch also holds graphs with one more node and one more frame, so that masks are in use and
    any leak between graphs shows.
    """
    with _without_dropout(model):
        batch = _call(model, collate([graph, _one_larger(graph)]))
        alone = _call(model, graph)
    N = graph.x.shape[2]
    inside = Forecast(batch.x[: len(graph), :, :N], batch.v[: len(graph), :, :N])
    _assert_small("padding", _error(inside, alone), graph, tolerance)


def _one_larger(graph: SpacetimeGraph) -> SpacetimeGraph:
    """`graph` with its last node and its last frame repeated."""
    _, L, N, _ = graph.x.shape
    nodes, frames = [*range(N), N - 1], [*range(L), L - 1]
    fields = dict(graph.fields())
    for name in fields.keys() & {"x", "v", "features", "observed", "neighbours", "edge_attr"}:
        value = fields[name][:, :, nodes]
        serves_all = value.shape[1] == 1 and name in ("neighbours", "edge_attr")
        fields[name] = value if serves_all else value[:, frames]
    if graph.neighbours is None and "edge_attr" in fields:
        fields["edge_attr"] = fields["edge_attr"][:, :, :, nodes]
    later = graph.times[:, -1:] + graph.horizon[:, :1].abs() + 1
    fields["times"] = torch.cat([graph.times, later], dim=1)
    return SpacetimeGraph._unchecked(fields)


def _assert_small(what: str, error: float, graph: SpacetimeGraph, tolerance: float | None) -> None:
    if tolerance is None:
        tolerance = TOLERANCE.get(graph.x.dtype, 1e-2)
    if not error <= tolerance:  # (also catches NaN)
        raise AssertionError(
            f"the forecast is not {what} {'invariant' if what == 'padding' else 'equivariant'}: "
            f"relative error {error:.2g}, tolerance {tolerance:.0e} in {graph.x.dtype}."
        )


def _call(model: Model, graph: SpacetimeGraph) -> Forecast:
    """The forecast, from the same state of the random number generator in every call."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return model(graph)


def _error(forecast: Forecast, expected: Forecast) -> float:
    """The larger of the relative errors of positions and velocities, over unpadded nodes."""
    mask = expected.mask
    if mask is None:
        mask = torch.ones(expected.x.shape[:3], dtype=torch.bool, device=expected.x.device)
    nodes = mask.unsqueeze(-1).to(expected.x.dtype)  # (B, T, N, 1)
    centroid = (expected.x * nodes).sum(2, keepdim=True) / nodes.sum(2, keepdim=True).clamp(min=1)
    spread = (expected.x - centroid)[mask]
    return _worst(
        _relative(forecast.x[mask], expected.x[mask], spread),
        _relative(forecast.v[mask], expected.v[mask], expected.v[mask]),
    )


def _worst(*errors: float) -> float:
    """The largest error, or NaN if any is NaN, which Python's max would lose."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def _relative(actual: Tensor, expected: Tensor, scale: Tensor) -> float:
    """max |actual - expected| / max |scale|; the absolute error if the scale is exactly zero."""
    size = float(scale.abs().max())
    return float((actual - expected).abs().max()) / (size or 1.0)


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
