"""Leapfrog integration of many systems at once, each with steps as long as it can bear.

Kick, drift, kick: v += h/2 a(x); x += h v; v += h/2 a(x). It is time-reversible and, with equal
steps, symplectic: energy errors stay small for ever. Close encounters need short steps; a system
takes them when, and only when, two of its nodes are about to meet.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spacetime_en.nn.physics.force import PairForce, Pairs, shortest_time

TOGETHER = 0.15  # share of finished systems at which the others go on by themselves


class StepControl(NamedTuple):
    """How fine the steps are.

    Args:
        min_steps, max_steps: numbers of steps for the whole duration.
        step_fraction: of the shortest time in which two nodes could meet; None: `min_steps` equal
            steps.
    """

    min_steps: int
    max_steps: int
    step_fraction: float | None


def leapfrog(
    force: PairForce,
    pairs: Pairs,
    x: Tensor,
    v: Tensor,
    duration: Tensor,
    control: StepControl,
    bound: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Positions and velocities after `duration`.

    Args:
        x, v: where the nodes start, (B, N, n).
        duration: (B,).
        bound: the largest gradient that a system may hand back through a step, see :class:`_Bound`.
    Returns: x, v, each (B, N, n).
    """
    motion = _Motion(force, bound)
    a, r = motion.acceleration(x, pairs)
    if control.step_fraction is not None:
        adaptively = motion.adaptively
        # Which systems go on is known only from the numbers: not for the compiler. (As a decorator
        # `disable` would import all of it, which takes seconds.)
        if "torch._dynamo" in sys.modules:
            adaptively = torch.compiler.disable(adaptively)
        return adaptively(pairs, x, v, a, r, duration, control)
    h = (duration / control.min_steps)[:, None, None]
    for _ in range(control.min_steps):
        x, v, a, _ = motion.step(pairs, x, v, a, h)
    return x, v


class _Motion(NamedTuple):
    """What every step has in common; the arguments are those of :func:`leapfrog`."""

    force: PairForce
    bound: float | None

    def acceleration(self, x: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Of nodes at x, (B, N, n), and the distances of all pairs there, (B, 1, N, K, 1)."""
        x_ij, r = pairs.differences(x)
        return self.force(x_ij, r, pairs), r

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, a: Tensor, h: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step of length h, (B, 1, 1); a is the acceleration at x, before and after.

        Returns: x, v, a and the distances of all pairs.
        """
        if self.bound is not None:
            x, v = _Bound.apply(x, v, self.bound)  # type: ignore[no-untyped-call]
        v = v + h / 2 * a
        x = x + h * v
        a, r = self.acceleration(x, pairs)
        return x, v + h / 2 * a, a, r

    def adaptively(
        self,
        pairs: Pairs,
        x: Tensor,
        v: Tensor,
        a: Tensor,
        r: Tensor,
        duration: Tensor,
        control: StepControl,
    ) -> tuple[Tensor, Tensor]:
        """The end of steps of each system's own."""
        assert control.step_fraction is not None
        left, rows = duration, torch.arange(len(x), device=x.device)
        finished: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(control.max_steps + 1):  # (one more, for what rounding leaves)
            with torch.no_grad():
                h = control.step_fraction * shortest_time(r, v, a, pairs)
                whole = duration[rows]
                h = torch.minimum(
                    h.clamp(whole / control.max_steps, whole / control.min_steps), left
                )
            x, v, a, r = self.step(pairs, x, v, a, h[:, None, None])
            left = left - h
            over = left <= 1e-6 * whole
            count = int(over.sum())
            if count == len(rows):
                break
            if count > TOGETHER * len(rows):
                done, on = over.nonzero()[:, 0], (~over).nonzero()[:, 0]
                finished.append((rows[done], x[done], v[done]))
                rows, x, v, a, r, left = (t[on] for t in (rows, x, v, a, r, left))
                pairs = pairs.select(on)
        finished.append((rows, x, v))
        rows, x, v = (torch.cat(parts) for parts in zip(*finished, strict=True))
        order = rows.argsort()
        return x[order], v[order]


class _Bound(torch.autograd.Function):
    """The identity; its gradient is shortened, system by system, to at most `bound`.

    After a close encounter the smallest change of the start decides where things go, and gradients
    grow without limit: a handful of systems would decide the direction of every step.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        ctx.bound = bound
        return x.view_as(x), v.view_as(v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        gx, gv = (g.nan_to_num(0.0, 0.0, 0.0) for g in grads)
        square = gx.square().sum((1, 2), keepdim=True) + gv.square().sum((1, 2), keepdim=True)
        share = (ctx.bound / square.sqrt().clamp(min=1e-30)).clamp(max=1.0)
        return gx * share, gv * share, None
