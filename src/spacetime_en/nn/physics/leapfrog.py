"""Leapfrog: steps of second order for forces that depend on positions alone.

Kick, drift, kick: v += h/2 a(x); x += h v; v += h/2 a(x). It is time-reversible and, with equal
steps, symplectic: energy errors stay bounded.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import Rates


class Force(Protocol):
    """Accelerations (B, N, n), from the differences and distances of all pairs."""

    def __call__(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor: ...


class Leapfrog(NamedTuple):
    """The motion x'' = a(x)."""

    force: Force

    def rates(self, pairs: Pairs, x: Tensor, v: Tensor) -> Rates:
        x_ij, r = pairs.differences(x)
        return Rates(v, self.force(x_ij, r, pairs), r)

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, rates: Rates, h: Tensor
    ) -> tuple[Tensor, Tensor, Rates]:
        v = v + h / 2 * rates.v
        x = x + h * v
        rates = self.rates(pairs, x, v)
        v = v + h / 2 * rates.v
        return x, v, rates._replace(x=v)
