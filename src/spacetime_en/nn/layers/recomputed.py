"""A function whose intermediate values are recomputed in the backward pass, to save memory.

``torch.utils.checkpoint`` handles tensors that the function saves for its own backward pass, but
not the autograd graphs that :mod:`spacetime_en.nn.layers.pieces` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spacetime_en.nn.layers.pieces import gradients

Recomputable = Callable[..., tuple[Tensor, Tensor]]


def recomputed(
    function: Recomputable, inputs: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """``function(*inputs)``; only the first of its two outputs has a gradient.

    Args:
        function: of the inputs; deterministic.
        inputs: tensors that may need gradients.
        weights: other tensors that `function` reads and that may need gradients.
    """
    weights = [w for w in weights if w.requires_grad]
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in (*inputs, *weights)):
        return function(*inputs)
    outputs: tuple[Tensor, Tensor] = _Recomputed.apply(  # type: ignore[no-untyped-call]
        function, len(inputs), *inputs, *weights
    )
    return outputs


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Recomputable, count: int, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.function, ctx.count = function, count
        ctx.save_for_backward(*tensors)
        value, other = function(*tensors[:count])
        ctx.mark_non_differentiable(other)
        return value, other

    @staticmethod
    def backward(ctx: Any, d_value: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weights = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        again = torch.is_grad_enabled()  # second derivatives may be needed
        if not again:
            inputs = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
        with torch.enable_grad():
            value, _ = ctx.function(*inputs)
            grads = gradients((value,), (*inputs, *weights), (d_value,), create_graph=again)
        return (None, None, *grads)
