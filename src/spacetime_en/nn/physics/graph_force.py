"""A learned law of force of many bodies: an EGNN gives the accelerations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.egcl import convolve, linear_at, mlp
from spacetime_en.nn.physics.force import Pairs


class GraphForce(nn.Module):
    """a_i = sum over layers of sum_j x_ij / r_ij phi_x(m_ij), m_ij = phi_e(h_i, h_j, log r_ij, s_ij).

    Unlike the law of a pair it may depend on all nodes around, and need not conserve anything.

    Args:
        features: number of features s_ij of a pair.
        hidden: width of the features h and of the messages.
        layers: number of graph convolutions.
    """

    def __init__(self, features: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.h = nn.Parameter(torch.randn(hidden))
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "phi_e": nn.Sequential(
                        *mlp(2 * hidden + 1 + features, hidden, hidden), nn.SiLU()
                    ),
                    "phi_x": mlp(hidden, hidden, 1, bias=False),
                    "phi_h": mlp(2 * hidden, hidden, hidden),
                }
            )
            for _ in range(layers)
        )
        for layer in self.layers:
            nn.init.zeros_(linear_at(layer["phi_x"], 2).weight)  # no forces before training

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        """Accelerations (B, N, n), from the differences and distances of all pairs."""
        h = self.h.expand(*x_ij.shape[:3], -1)
        s, towards = torch.cat([r.log(), pairs.s], dim=-1), x_ij / r
        total = torch.zeros_like(x_ij[:, 0, :, 0])
        for layer in self.layers:
            phi = (layer["phi_e"], layer["phi_x"], layer["phi_h"])
            pull, update = convolve(*phi, h, s, towards, pairs.neighbourhood)
            total, h = total + pull.squeeze(1), h + update
        return total
