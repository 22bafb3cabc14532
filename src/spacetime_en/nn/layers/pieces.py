"""A function of independent rows, piece by piece: one parallel region for all its operators.

Each piece runs on one thread (:mod:`spacetime_en._util.threads`), in the forward and the backward
pass, with its own autograd graph. The gradients of the weights are added in the order of the
pieces: results are bitwise independent of timing and of the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spacetime_en._util.threads import InOrder, share

Function = Callable[..., tuple[Tensor, ...]]


def by_pieces(
    function: Function, cuts: Sequence[int], rows: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """``function(0, *rows)``, computed on pieces of the rows.

    Args:
        function: of the index of the first row and of tensors of rows; its outputs are rows, too.
        cuts: where pieces end; the last is the number of rows.
        rows: tensors with that number of rows.
        weights: other tensors that `function` reads and that may need gradients. None may be among
            the rows or depend on another, or second derivatives would count it twice.
    """
    weights = [w for w in weights if w.requires_grad]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (*rows, *weights)):
        outputs: tuple[Tensor, ...] = _ByPieces.apply(  # type: ignore[no-untyped-call]
            function, cuts, len(rows), *rows, *weights
        )
        return outputs
    inference = torch.is_inference_mode_enabled()

    def value(first: int, *piece: Tensor) -> tuple[Tensor, ...]:
        with torch.inference_mode(inference), torch.no_grad():
            return function(first, *piece)

    return _joined(_each(value, _cut(cuts, rows)))


def even_cuts(rows: int, count: int) -> list[int]:
    """The ends of `count` pieces with about the same number of rows."""
    return [rows * (k + 1) // count for k in range(count)]


class _Graph(NamedTuple):
    """The inputs and outputs of a piece, connected by its autograd graph."""

    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]


class _ByPieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Function, cuts: Sequence[int], count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        needed = ctx.needs_input_grad[3:]
        rows = tensors[:count]

        def recorded(first: int, *piece: Tensor) -> _Graph:
            with torch.inference_mode(False), torch.enable_grad():
                inputs = [
                    t.detach().requires_grad_(wanted)
                    for t, wanted in zip(piece, needed[:count], strict=True)
                ]
                return _Graph(inputs, function(first, *inputs))

        ctx.graphs = _each(recorded, _cut(cuts, rows))
        ctx.function, ctx.cuts, ctx.count = function, cuts, count
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return _joined([tuple(t.detach() for t in graph.outputs) for graph in ctx.graphs])

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, all rows at once
            outputs = ctx.function(0, *tensors[: ctx.count])
            return (None, None, None, *gradients(outputs, tensors, d_outputs, create_graph=True))
        keep = torch._C._autograd._get_current_graph_task_keep_graph()
        weights = list(tensors[ctx.count :])
        totals: list[Tensor | None] = [None] * len(weights)
        graphs: list[_Graph | None] = list(ctx.graphs)
        if not keep:
            ctx.graphs = None

        def add(parts: Sequence[Tensor | None]) -> None:
            for k, part in enumerate(parts):
                total = totals[k]
                if part is not None:
                    totals[k] = part if total is None else total + part

        of_weights = InOrder(add)

        def back(number: int, *d_piece: Tensor | None) -> list[Tensor | None]:
            graph = graphs[number]
            assert graph is not None
            graphs[number] = None
            inputs = [*graph.inputs, *weights]
            with torch.inference_mode(False):
                grads = gradients(graph.outputs, inputs, d_piece, retain_graph=keep)
                of_weights.put(number, grads[ctx.count :])
            return grads[: ctx.count]

        cut = _cut(ctx.cuts, d_outputs)
        d_pieces = _each(back, [(number, *piece) for number, (_, *piece) in enumerate(cut)])
        of_rows = (_concatenated(parts) for parts in zip(*d_pieces, strict=True))
        return (None, None, None, *of_rows, *totals)


def gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    d_outputs: Sequence[Tensor | None],
    **how: bool,
) -> list[Tensor | None]:
    """The gradients of `inputs` from those of `outputs`; None where none exists or is required.

    Args:
        how: options of ``torch.autograd.grad``.
    """
    pairs = zip(outputs, d_outputs, strict=True)
    given = [(out, d) for out, d in pairs if d is not None and out.requires_grad]
    asked = [t for t in inputs if t.requires_grad]
    if not given or not asked:
        return [None] * len(inputs)
    outputs, d_outputs = zip(*given, strict=True)
    grads = iter(torch.autograd.grad(outputs, asked, d_outputs, allow_unused=True, **how))
    return [next(grads) if t.requires_grad else None for t in inputs]


def _cut(cuts: Sequence[int], rows: Sequence[Tensor | None]) -> list[tuple[Any, ...]]:
    """The first row of each piece, and its parts of the rows."""
    return [
        (first, *(None if t is None else t[first:last] for t in rows))
        for first, last in zip([0, *cuts[:-1]], cuts, strict=True)
    ]


def _each(function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The function's value on each piece, computed on several threads."""
    values: list[Any] = [None] * len(pieces)

    def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            values[number] = function(*pieces[number])

    share(range(len(pieces)), work)
    return values


def _joined(pieces: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))


def _concatenated(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The gradient of all rows; None if no output depends on them (in all pieces alike)."""
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
