"""Recomputed values: the same gradients, and no stored activations."""

import torch

from spacetime_en.nn.layers.recomputed import recomputed


def function(x, w, calls):
    def at(x, s):
        calls.append(torch.is_grad_enabled())
        return (x * w).tanh() * s, x.detach()

    return at


def tensors():
    torch.manual_seed(0)
    made = (torch.randn(5, dtype=torch.float64) for _ in range(3))
    return [t.requires_grad_() for t in made]


def test_values_and_derivatives_of_both_orders_are_those_of_the_function():
    x, s, w = tensors()
    value, other = recomputed(function(x, w, []), (x, s), (w,))
    plain, _ = function(x, w, [])(x, s)
    assert not other.requires_grad
    assert torch.equal(value, plain)
    gradients = []
    for out in (value, plain):
        first = torch.autograd.grad(out.sum(), (x, s, w), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, s, w))
        gradients.append((*first, *second))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)


def test_nothing_is_recorded_in_the_forward_pass():
    x, s, w = tensors()
    calls = []
    value, _ = recomputed(function(x, w, calls), (x, s), (w,))
    value.sum().backward()
    assert calls == [False, True]
    assert all(t.grad is not None for t in (x, s, w))


def test_without_gradients_the_function_is_called_once():
    x, s, w = (t.detach() for t in tensors())
    calls = []
    recomputed(function(x, w, calls), (x, s), (w,))
    assert len(calls) == 1
