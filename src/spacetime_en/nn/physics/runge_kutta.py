"""The classical fourth-order Runge-Kutta method, for any law of motion."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import Rates

# x' and v' of nodes at x with velocities v, (B, N, n) each.
VectorField = Callable[[Pairs, Tensor, Tensor], tuple[Tensor, Tensor]]


class RungeKutta(NamedTuple):
    """The motion (x, v)' = field(x, v)."""

    field: VectorField

    def rates(self, pairs: Pairs, x: Tensor, v: Tensor) -> Rates:
        _, r = pairs.differences(x)
        return Rates(*self.field(pairs, x, v), r)

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, rates: Rates, h: Tensor
    ) -> tuple[Tensor, Tensor, Rates]:
        k1 = self.field(pairs, x, v)  # (recomputed: gradients go only through the bounded x and v)
        k2 = self.field(pairs, x + h / 2 * k1[0], v + h / 2 * k1[1])
        k3 = self.field(pairs, x + h / 2 * k2[0], v + h / 2 * k2[1])
        k4 = self.field(pairs, x + h * k3[0], v + h * k3[1])
        dx, dv = ((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        x, v = x + h * dx, v + h * dv
        _, r = pairs.differences(x)
        return x, v, Rates(*k4, r)  # (k4: the rates at the end to third order, near enough)
