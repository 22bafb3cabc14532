"""Leapfrog: a second-order method for forces that depend only on positions.

Kick, drift, kick: v += h/2 a(x); x += h v; v += h/2 a(x). With equal steps it is time-reversible
and symplectic: energy errors stay bounded.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from spacetime_en.nn.layers.messages import runs_eagerly
from spacetime_en.nn.layers.recomputed import recomputed
from spacetime_en.nn.physics.force import PairForce, Pairs
from spacetime_en.nn.physics.integration import Rates

# Number of pairs above which activations of the force law are recomputed in the backward pass:
# storing half a kilobyte for each pair in each step would take gigabytes.
RECOMPUTE_ABOVE = 16_384


class Force(Protocol):
    """Accelerations (B, N, n), from the differences and distances of all pairs."""

    def __call__(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor: ...


class Leapfrog(NamedTuple):
    """The motion x'' = a(x)."""

    force: Force

    def rates(self, pairs: Pairs, x: Tensor, v: Tensor) -> Rates:
        # (Distances are used only to choose steps, which has no gradient.)
        inputs = (x, pairs.s, *(() if pairs.mass is None else (pairs.mass,)))

        def at(x: Tensor, s: Tensor, mass: Tensor | None = None) -> tuple[Tensor, Tensor]:
            there = pairs._replace(s=s, mass=mass)
            x_ij, r = there.differences(x)
            return self.force(x_ij, r, there), r.detach()

        cell = pairs.neighbourhood.cell
        known = cell is None or not cell.requires_grad  # nothing else may need gradients
        large = runs_eagerly() and pairs.neighbourhood.mask.numel() > RECOMPUTE_ABOVE
        if known and large and isinstance(self.force, PairForce):
            return Rates(v, *recomputed(at, inputs, tuple(self.force.parameters())))
        return Rates(v, *at(*inputs))

    def step(
        self, pairs: Pairs, x: Tensor, v: Tensor, rates: Rates, h: Tensor
    ) -> tuple[Tensor, Tensor, Rates]:
        v = v + h / 2 * rates.v
        x = x + h * v
        rates = self.rates(pairs, x, v)
        v = v + h / 2 * rates.v
        return x, v, rates._replace(x=v)
