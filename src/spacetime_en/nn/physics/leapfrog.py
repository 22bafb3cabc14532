"""Leapfrog integration of a batch of systems, each with adaptive steps of its own.

Kick, drift, kick: v += h/2 a(x); x += h v; v += h/2 a(x). It is time-reversible and, with equal
steps, symplectic: energy errors stay bounded. Close encounters need short steps; a system takes
them when, and only when, two of its nodes are about to meet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spacetime_en.nn.layers.messages import runs_eagerly
from spacetime_en.nn.layers.recomputed import recomputed
from spacetime_en.nn.physics.force import PairForce, Pairs, shortest_time

COMPACT_ABOVE = 0.15  # fraction of finished systems above which only the others go on
# Pairs above which activations of the law of force are computed again in the backward pass: half a
# kilobyte for each pair in each step would be gigabytes.
RECOMPUTE_ABOVE = 16_384


class StepControl(NamedTuple):
    """How long the steps are.

    Args:
        min_steps, max_steps: bounds on the number of steps for the whole duration.
        step_fraction: the step as a fraction of the shortest time in which two nodes could meet;
            None: `min_steps` equal steps.
    """

    min_steps: int
    max_steps: int
    step_fraction: float | None


def leapfrog(
    force: PairForce,
    pairs: Pairs,
    x: Tensor,
    v: Tensor,
    legs: Sequence[tuple[Tensor, StepControl]],
    bound: float | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Positions and velocities at the end of each leg of a flow.

    Args:
        x, v: initial positions and velocities, (B, N, n).
        legs: the duration of each, (B,), and how long its steps are.
        bound: on the norm of a system's gradient at every step, see :class:`_BoundedGradient`.
    Returns: x, v, each (B, N, n), for every leg.
    """
    motion, ends = _Motion(force, bound), []
    a, r = motion.acceleration(x, pairs)
    for duration, control in legs:
        x, v, a, r = _leg(motion, pairs, x, v, a, r, duration, control)
        ends.append((x, v))
    return ends


def _leg(
    motion: _Motion,
    pairs: Pairs,
    x: Tensor,
    v: Tensor,
    a: Tensor,
    r: Tensor,
    duration: Tensor,
    control: StepControl,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions, velocities, accelerations and distances of pairs at the end of a leg."""
    if control.step_fraction is not None:
        adaptively = motion.adaptively
        # Which systems go on depends on values, so this is not for the compiler. (As a decorator,
        # `disable` would import all of torch's compiler, which takes seconds.)
        if "torch._dynamo" in sys.modules:
            adaptively = torch.compiler.disable(adaptively)
        return adaptively(pairs, x, v, a, r, duration, control)
    h = (duration / control.min_steps)[:, None, None]
    for _ in range(control.min_steps):
        x, v, a, r = motion.step(pairs, x, v, a, h)
    return x, v, a, r


class _Motion(NamedTuple):
    """The equations of motion; the arguments are those of :func:`leapfrog`."""

    force: PairForce
    bound: float | None

    def acceleration(self, x: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Accelerations of nodes at x, (B, N, n), and distances of all pairs, (B, 1, N, K, 1).

        (The distances are there to choose steps by, which has no gradient.)
        """

        def at(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
            there = pairs._replace(s=s)
            x_ij, r = there.differences(x)
            return self.force(x_ij, r, there), r.detach()

        cell = pairs.neighbourhood.cell
        known = cell is None or not cell.requires_grad  # all that gradients may be asked of
        if known and runs_eagerly() and pairs.neighbourhood.mask.numel() > RECOMPUTE_ABOVE:
            return recomputed(at, (x, pairs.s), tuple(self.force.parameters()))
        return at(x, pairs.s)

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, a: Tensor, h: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step of length h, (B, 1, 1); a is the acceleration at x, before and after.

        Returns: x, v, a and the distances of all pairs.
        """
        if self.bound is not None:
            x, v = _BoundedGradient.apply(x, v, self.bound)  # type: ignore[no-untyped-call]
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
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The end of a leg, see :func:`_leg`, in adaptive steps."""
        assert control.step_fraction is not None
        left, rows = duration, torch.arange(len(x), device=x.device)
        finished: list[tuple[Tensor, ...]] = []
        for _ in range(control.max_steps + 1):  # (one more, for rounding)
            with torch.no_grad():
                h = control.step_fraction * shortest_time(r, v, a, pairs)
                whole = duration[rows]
                h = torch.minimum(
                    h.clamp(whole / control.max_steps, whole / control.min_steps), left
                )
            x, v, a, r = self.step(pairs, x, v, a, h[:, None, None])
            left = left - h
            is_done = left <= 1e-6 * whole
            count = int(is_done.sum())
            if count == len(rows):
                break
            if count > COMPACT_ABOVE * len(rows):
                done, active = is_done.nonzero()[:, 0], (~is_done).nonzero()[:, 0]
                finished.append(tuple(t[done] for t in (rows, x, v, a, r)))
                rows, x, v, a, r, left = (t[active] for t in (rows, x, v, a, r, left))
                pairs = pairs.select(active)
        if not finished:
            return x, v, a, r
        finished.append((rows, x, v, a, r))
        rows, x, v, a, r = (torch.cat(parts) for parts in zip(*finished, strict=True))
        order = rows.argsort()
        return x[order], v[order], a[order], r[order]


class _BoundedGradient(torch.autograd.Function):
    """The identity; its gradient is clipped, system by system, to the norm `bound`.

    After a close encounter, motions are chaotic and gradients grow without limit: a handful of
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
