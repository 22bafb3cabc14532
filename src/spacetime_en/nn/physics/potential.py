"""A learned potential between pairs of nodes; the force is its derivative.

Potentials span many orders of magnitude, too, and are learned on logarithmic axes: a network maps
log r to the arcsinh of the potential. Its derivative by the scalar log r is written out, in forward
mode, which costs as much as the network itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.physics.force import MAX_ARCSINH, PairForce, Pairs


class PairPotential(PairForce):
    """m_i a_i = -d/dx_i U,    U = 1/2 sum_ij sinh phi(log r_ij, s_ij).

    The forces of a pair are opposite even if s_ij is not s_ji: that of i <- j also acts on j.
    """

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        pull = self._strengths(r, pairs) / r * pairs.neighbourhood.mask.unsqueeze(-1)
        on_i = pull / 2 * x_ij  # (B, 1, N, K, n)
        force = (on_i.sum(3) - pairs.neighbourhood.sum_at_senders(on_i)).squeeze(1)
        return force if pairs.mass is None else force / pairs.mass

    def potential(self, r: Tensor, s: Tensor) -> Tensor:
        phi: Tensor = self.phi(torch.cat([r.log(), s], dim=-1))
        return phi.clamp(-MAX_ARCSINH, MAX_ARCSINH).sinh()

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        """-dU/dr = -cosh(phi) phi' / r, where phi' is the derivative with respect to log r."""
        phi, slope = value_and_slope(self.phi, torch.cat([r.log(), s], dim=-1))
        slope = slope * (phi.abs() < MAX_ARCSINH)
        return -phi.clamp(-MAX_ARCSINH, MAX_ARCSINH).cosh() * slope / r


def value_and_slope(phi: nn.Sequential, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """A network of Linears and SiLUs at (..., c), and its derivative by the first component."""
    value, slope = inputs, torch.zeros_like(inputs)
    slope[..., 0] = 1.0
    for layer in phi:
        if isinstance(layer, nn.Linear):
            slope = F.linear(slope, layer.weight)
        else:
            gate = value.sigmoid()
            slope = slope * gate * (1 + value * (1 - gate))
        value = layer(value)
    return value, slope
