"""A learned force law between pairs of nodes.

Forces between bodies span many orders of magnitude, from close encounters to distant neighbours.
The law is therefore learned on logarithmic axes: a network maps log r to the arcsinh of the force,
so that a power law, whatever its exponent, is nearly a straight line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.egcl import is_unmodified, mlp
from spacetime_en.nn.layers.messages import runs_eagerly
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.pieces import by_pieces

MAX_ARCSINH = 12.0  # of the force between two nodes, which is at most e^12 / 2 in the model's units
QUADRATURE = 64  # number of points for integrating a force to its potential
CHUNK = 16_384  # pairs at a time on a CPU, so that activations stay in its caches


class Pairs(NamedTuple):
    """Pairs of interacting nodes, and the features that their force may depend on.

    Args:
        neighbourhood: the edges of B graphs of one frame.
        s: features of the pairs, constant in time, (B, 1, N, K, c).
        softening: the length below which forces are smoothed.
        mass: masses of the nodes, (B, N, 1); None: 1.
    """

    neighbourhood: Neighbourhood
    s: Tensor
    softening: float = 0.0
    mass: Tensor | None = None

    def select(self, rows: Tensor) -> Pairs:
        """The pairs of some of the graphs."""
        mass = None if self.mass is None else self.mass[rows]
        return Pairs(self.neighbourhood.select(rows), self.s[rows], self.softening, mass)

    def differences(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x_i - x_j and softened distances of nodes at x (B, N, n), (B, 1, N, K, n or 1)."""
        x_ij = self.neighbourhood.differences(x.unsqueeze(1))
        return x_ij, (x_ij.square().sum(-1, keepdim=True) + self.softening**2).sqrt()

    def velocity_differences(self, v: Tensor) -> Tensor:
        """v_i - v_j, which are not wrapped in a box, (B, N, n) -> (B, 1, N, K, n)."""
        return self.neighbourhood._replace(cell=None).differences(v.unsqueeze(1))


class PairForce(nn.Module):
    """a_i = sum_j (x_i - x_j) / r_ij  sinh phi(log r_ij, s_ij).

    Where s_ij = s_ji the accelerations of a pair are opposite and depend only on its distance:
    momentum is conserved, and so is an energy, because every such force is the gradient of a
    potential.

    Args:
        features: number of features s_ij of a pair.
        hidden: width of phi.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        last = nn.Linear(hidden, 1)
        nn.init.zeros_(last.weight)  # an untrained model has no forces
        nn.init.zeros_(last.bias)
        self.phi = nn.Sequential(*mlp(1 + features, hidden, hidden), nn.SiLU(), last)

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        """Accelerations, (B, N, n), from the differences and distances of all pairs."""
        pull = self._strengths(r, pairs) / r * pairs.neighbourhood.mask.unsqueeze(-1)
        return torch.einsum("blnkc,blnkd->bnd", pull, x_ij)

    def _strengths(self, r: Tensor, pairs: Pairs) -> Tensor:
        """The forces of all pairs, (B, 1, N, K, 1); 0 in unused places of neighbour lists.

        Unused places are skipped: nearly all time is spent here, and half of them may be unused.
        """
        # (Compiled or exported code must not depend on values.)
        if pairs.neighbourhood.complete or torch.compiler.is_compiling():
            return self._by_chunks(r, pairs.s)
        at = pairs.neighbourhood.mask.flatten().nonzero().squeeze(1)
        forces = self._by_chunks(*(t.flatten(0, 3).index_select(0, at) for t in (r, pairs.s)))
        return forces.new_zeros(r.numel(), 1).index_copy(0, at, forces).view(r.shape)

    def _by_chunks(self, r: Tensor, s: Tensor) -> Tensor:
        """`strength` on all threads, in chunks of pairs that fit into the caches."""
        pairs = r.numel()
        if not runs_eagerly() or pairs <= CHUNK or r.device.type != "cpu":
            return self.strength(r, s)
        if not is_unmodified(self.phi) or any(p._backward_hooks for p in self.parameters()):
            return self.strength(r, s)
        (forces,) = by_pieces(
            lambda _, r, s: (self.strength(r, s),),
            [*range(CHUNK, pairs, CHUNK), pairs],
            [t.flatten(0, -2) for t in (r, s)],
            tuple(self.parameters()),
        )
        return forces.view(r.shape)

    def potential(self, r: Tensor, s: Tensor) -> Tensor:
        """The potential of pairs at distances r (..., 1) with features s (..., c), (..., 1).

        U(r) is the integral of the force from r to 1, so that -dU/dr is the force; it is computed
        as the integral of the force times the distance over the logarithm of the distance, from
        log r to 0. Where forces are softened, r is the softened distance.
        """
        log_r = r.log()
        energy = torch.zeros_like(r)
        nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            at = (log_r * float(1 - node)).exp()  # from r to 1, evenly in log r
            energy = energy - float(weight) * log_r * at * self.strength(at, s)
        return energy

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        """The force at distances r (..., 1) of pairs with features s (..., c), (..., 1)."""
        phi: Tensor = self.phi(torch.cat([r.log(), s], dim=-1))
        return phi.clamp(-MAX_ARCSINH, MAX_ARCSINH).sinh()


def shortest_time(r: Tensor, v: Tensor, a: Tensor, pairs: Pairs) -> Tensor:
    """The shortest time in which two nodes could meet, by velocity or by acceleration, (B,).

    The minimum of r / |v_i - v_j| and sqrt(r / |a_i - a_j|) over the pairs of each graph, with
    softened distances r, (B, 1, N, K, 1).
    """
    v_ij, a_ij = (pairs.velocity_differences(t).square().sum(-1).sqrt() for t in (v, a))
    tiny = torch.finfo(r.dtype).tiny
    r = r.squeeze(-1)  # (B, 1, N, K)
    time = torch.minimum(r / v_ij.clamp(min=tiny), (r / a_ij.clamp(min=tiny)).sqrt())
    time = time.masked_fill(~pairs.neighbourhood.mask, torch.inf).flatten(1)
    return torch.cat([time, torch.full_like(v[:, :1, 0], torch.inf)], dim=1).amin(1)
