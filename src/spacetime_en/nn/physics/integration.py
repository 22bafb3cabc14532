"""Integration of a batch of systems, each with its own adaptive steps.

Close encounters need short steps; a system takes them when, and only when, two of its nodes are
about to meet. The steps are those of a scheme: :mod:`~spacetime_en.nn.physics.leapfrog` or
:mod:`~spacetime_en.nn.physics.runge_kutta`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from spacetime_en.nn.physics.force import Pairs, shortest_time

COMPACT_ABOVE = 0.15  # fraction of finished systems above which they are removed from the batch


class StepControl(NamedTuple):
    """How step sizes are chosen.

    Args:
        min_steps, max_steps: bounds on the number of steps for the whole duration, of all systems;
            `min_steps` may be one for each, (B,).
        step_fraction: the step as a fraction of the shortest time in which two nodes could meet;
            None: `min_steps` equal steps.
    """

    min_steps: int | Tensor
    max_steps: int
    step_fraction: float | None


class Rates(NamedTuple):
    """The time derivatives of a state, and the distances of its nodes.

    Args:
        x, v: the time derivatives of positions and velocities, (B, N, n).
        r: distances of all pairs, (B, 1, N, K, 1).
    """

    x: Tensor
    v: Tensor
    r: Tensor


class Scheme(Protocol):
    """A law of motion, with a method of integration."""

    def rates(self, pairs: Pairs, x: Tensor, v: Tensor) -> Rates:
        """The rates of nodes at x with velocities v, (B, N, n)."""

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, rates: Rates, h: Tensor
    ) -> tuple[Tensor, Tensor, Rates]:
        """One step of size h, (B, 1, 1), from a state and its rates to the next."""


def advance(
    scheme: Scheme,
    pairs: Pairs,
    x: Tensor,
    v: Tensor,
    legs: Sequence[tuple[Tensor, StepControl]],
    bound: float | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Positions and velocities at the end of each leg of a trajectory.

    Args:
        x, v: initial positions and velocities, (B, N, n).
        legs: the duration, (B,), and the step control of each.
        bound: on the norm of a system's gradient at every step, see :class:`_BoundedGradient`.
    Returns: x, v, each (B, N, n), for every leg.
    """
    scheme = scheme if bound is None else _Bounded(scheme, bound)
    state, ends = _State(x, v, scheme.rates(pairs, x, v)), []
    for duration, control in legs:
        state = _leg(scheme, pairs, state, duration, control)
        ends.append((state.x, state.v))
    return ends


class _State(NamedTuple):
    """Positions and velocities (B, N, n), and their rates."""

    x: Tensor
    v: Tensor
    rates: Rates

    def select(self, rows: Tensor) -> _State:
        """The states of some systems."""
        return _State(self.x[rows], self.v[rows], Rates(*(t[rows] for t in self.rates)))


def _leg(
    scheme: Scheme, pairs: Pairs, state: _State, duration: Tensor, control: StepControl
) -> _State:
    """The state after `duration`."""
    if control.step_fraction is not None:
        adaptively = _leg_adaptively
        # Control flow depends on values, which cannot be compiled. (As a decorator, `disable` would
        # import all of torch's compiler, which takes seconds.)
        if "torch._dynamo" in sys.modules:
            adaptively = torch.compiler.disable(adaptively)
        return adaptively(scheme, pairs, state, duration, control)
    steps = control.min_steps
    h = duration / steps
    for k in range(int(steps.max()) if isinstance(steps, Tensor) else steps):
        # (A system whose number is less has arrived: steps of length 0 leave it there.)
        now = h.where(steps > k, 0.0) if isinstance(steps, Tensor) else h
        state = _State(*scheme.step(pairs, *state, now[:, None, None]))
    return state


def _leg_adaptively(
    scheme: Scheme, pairs: Pairs, state: _State, duration: Tensor, control: StepControl
) -> _State:
    """The state after `duration`, in adaptive steps."""
    assert control.step_fraction is not None
    left, rows = duration, torch.arange(len(duration), device=duration.device)
    longest, shortest = duration / control.min_steps, duration / control.max_steps
    finished: list[tuple[Tensor, _State]] = []
    for _ in range(control.max_steps + 1):  # (one more, for rounding)
        with torch.no_grad():
            rates = state.rates
            h = control.step_fraction * shortest_time(rates.r, rates.x, rates.v, pairs)
            h = torch.minimum(h.clamp(shortest[rows], longest[rows]), left)
        state = _State(*scheme.step(pairs, *state, h[:, None, None]))
        left = left - h
        is_done = left <= 1e-6 * duration[rows]
        count = int(is_done.sum())
        if count == len(rows):
            break
        if count > COMPACT_ABOVE * len(rows):
            done, active = is_done.nonzero()[:, 0], (~is_done).nonzero()[:, 0]
            finished.append((rows[done], state.select(done)))
            rows, left, state = rows[active], left[active], state.select(active)
            pairs = pairs.select(active)
    if not finished:
        return state
    parts = [*finished, (rows, state)]
    order = torch.cat([rows for rows, _ in parts]).argsort()

    def joined(tensors: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(tensors))[order]

    return _State(
        joined(s.x for _, s in parts),
        joined(s.v for _, s in parts),
        Rates(*(joined(t) for t in zip(*(s.rates for _, s in parts), strict=True))),
    )


class _Bounded(NamedTuple):
    """A scheme that bounds the gradients through each of its steps."""

    scheme: Scheme
    bound: float

    def rates(self, pairs: Pairs, x: Tensor, v: Tensor) -> Rates:
        return self.scheme.rates(pairs, x, v)

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, rates: Rates, h: Tensor
    ) -> tuple[Tensor, Tensor, Rates]:
        x, v = _BoundedGradient.apply(x, v, self.bound)  # type: ignore[no-untyped-call]
        return self.scheme.step(pairs, x, v, rates, h)


class _BoundedGradient(torch.autograd.Function):
    """The identity; its gradient is clipped, system by system, to the norm `bound`.

    After a close encounter, trajectories are chaotic and gradients grow without bound: a few
    systems would dominate every training step.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        ctx.bound = bound
        return x.view_as(x), v.view_as(v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        gx, gv = (g.nan_to_num(0.0, 0.0, 0.0) for g in grads)
        square = gx.square().sum((1, 2), keepdim=True) + gv.square().sum((1, 2), keepdim=True)
        factor = (ctx.bound / square.sqrt().clamp(min=1e-30)).clamp(max=1.0)
        return gx * factor, gv * factor, None
