"""Accelerations from pairs of nodes: a law of force to be learned.

Forces between bodies span many orders of magnitude, from close encounters to far neighbours. The
law is therefore learned between logarithms: a network of log r gives the arcsinh of the force, and
a power law, whatever its exponent, is nearly a straight line to it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.egcl import is_unmodified, mlp
from spacetime_en.nn.layers.messages import runs_eagerly
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.pieces import by_pieces

LARGEST = 12.0  # arcsinh of the largest force between two nodes, e^12 / 2 in the model's units
CHUNK = 16_384  # pairs at a time on a CPU: what the network makes of them stays in its caches


class Pairs(NamedTuple):
    """Who acts on whom, and the numbers that their force may depend on.

    Args:
        neighbourhood: the edges of B graphs of one frame.
        s: numbers of the pair that do not change, (B, 1, N, K, c).
        softening: a length below which forces are smoothed, for all graphs or for each, (B,).
    """

    neighbourhood: Neighbourhood
    s: Tensor
    softening: float | Tensor = 0.0

    def select(self, rows: Tensor) -> Pairs:
        """The pairs of some of the graphs; a graph may come several times."""
        soft = self.softening
        soft = soft[rows] if isinstance(soft, Tensor) else soft
        return Pairs(self.neighbourhood.select(rows), self.s[rows], soft)

    def differences(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x_i - x_j and softened distances of nodes at x (B, N, n), (B, 1, N, K, n or 1)."""
        x_ij = self.neighbourhood.differences(x.unsqueeze(1))
        soft = self.softening
        soft = soft.view(-1, 1, 1, 1, 1) if isinstance(soft, Tensor) else soft
        return x_ij, (x_ij.square().sum(-1, keepdim=True) + soft**2).sqrt()


class PairForce(nn.Module):
    """a_i = sum_j (x_i - x_j) / r_ij  sinh phi(log r_ij, s_ij).

    Where s_ij = s_ji the accelerations of a pair are opposite and depend on its distance alone:
    momentum is conserved, and there is an energy, because every such force is the gradient of a
    potential.

    Args:
        numbers: how many numbers s_ij a pair has.
        hidden: width of phi.
    """

    def __init__(self, numbers: int, hidden: int) -> None:
        super().__init__()
        last = nn.Linear(hidden, 1)
        nn.init.zeros_(last.weight)  # as built, nothing acts on anything
        nn.init.zeros_(last.bias)
        self.phi = nn.Sequential(*mlp(1 + numbers, hidden, hidden), nn.SiLU(), last)

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        """Accelerations (B, N, n), from the differences and distances of all pairs."""
        pull = self._strengths(r, pairs) / r * pairs.neighbourhood.mask.unsqueeze(-1)
        return torch.einsum("blnkc,blnkd->bnd", pull, x_ij)

    def _strengths(self, r: Tensor, pairs: Pairs) -> Tensor:
        """The forces of all pairs, (B, 1, N, K, 1); 0 in unused places of neighbour lists.

        Nearly all of the time goes here, and half of the places may be unused.
        """
        # (What is compiled or exported must not depend on the numbers.)
        if pairs.neighbourhood.complete or torch.compiler.is_compiling():
            return self._by_chunks(r, pairs.s)
        at = pairs.neighbourhood.mask.flatten().nonzero().squeeze(1)
        found = self._by_chunks(*(t.flatten(0, 3).index_select(0, at) for t in (r, pairs.s)))
        return found.new_zeros(r.numel(), 1).index_copy(0, at, found).view(r.shape)

    def _by_chunks(self, r: Tensor, s: Tensor) -> Tensor:
        """`strength`, so many pairs at a time that they stay in the caches, on all threads."""
        pairs = r.numel()
        if not runs_eagerly() or pairs <= CHUNK or r.device.type != "cpu":
            return self.strength(r, s)
        if not is_unmodified(self.phi) or any(p._backward_hooks for p in self.parameters()):
            return self.strength(r, s)
        (found,) = by_pieces(
            lambda _, r, s: (self.strength(r, s),),
            [*range(CHUNK, pairs, CHUNK), pairs],
            [t.flatten(0, -2) for t in (r, s)],
            tuple(self.parameters()),
        )
        return found.view(r.shape)

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        """The force at distances r (..., 1) of pairs with numbers s (..., c), (..., 1)."""
        phi: Tensor = self.phi(torch.cat([r.log(), s], dim=-1))
        return phi.clamp(-LARGEST, LARGEST).sinh()


def shortest_time(r: Tensor, v: Tensor, a: Tensor, pairs: Pairs) -> Tensor:
    """The shortest time in which two nodes could meet, by their speed or by their pull, (B,).

    The least of r / |v_i - v_j| and sqrt(r / |a_i - a_j|) over the pairs of each graph, with
    distances r as forces see them, (B, 1, N, K, 1).
    """
    edges = pairs.neighbourhood._replace(cell=None)  # which wraps no velocities and accelerations
    v_ij, a_ij = (edges.differences(t.unsqueeze(1)).square().sum(-1).sqrt() for t in (v, a))
    tiny = torch.finfo(r.dtype).tiny
    r = r.squeeze(-1)  # (B, 1, N, K)
    time = torch.minimum(r / v_ij.clamp(min=tiny), (r / a_ij.clamp(min=tiny)).sqrt())
    time = time.masked_fill(~edges.mask, torch.inf).flatten(1)
    return torch.cat([time, torch.full_like(v[:, :1, 0], torch.inf)], dim=1).amin(1)
