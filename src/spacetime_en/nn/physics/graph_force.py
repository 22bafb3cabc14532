"""A learned many-body force law: an EGNN gives the accelerations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.egcl import convolve, linear_at, mlp
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs


class GraphForce(nn.Module):
    """a_i = sum_j x_ij / r_ij phi_x(m_ij), summed over all layers.

    With messages m_ij = phi_e(h_i, h_j, log r_ij, s_ij) and h_i <- h_i + phi_h(h_i, sum_j m_ij).
    Unlike a pair force it may depend on all surrounding nodes, and need not conserve anything.

    Args:
        features: number of features s_ij of a pair.
        hidden: width of the features h and of the messages.
        layers: number of graph convolutions.
    """

    def __init__(self, features: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.h = nn.Parameter(torch.randn(hidden))
        updates = [True] * (layers - 1) + [False]  # the last features are not used
        self.layers = nn.ModuleList(PullLayer(features, hidden, update) for update in updates)

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        """Accelerations, (B, N, n), from the differences and distances of all pairs."""
        h = self.h.expand(*x_ij.shape[:3], -1)
        s, towards = torch.cat([r.log(), pairs.s], dim=-1), x_ij / r
        total = torch.zeros_like(x_ij[:, 0, :, 0])
        for layer in self.layers:
            pull, update = layer(h, s, towards, pairs.neighbourhood)
            total, h = total + pull.squeeze(1), h + update
        return total


class PullLayer(nn.Module):
    """One graph convolution: accelerations of the nodes, and optionally an update of features."""

    def __init__(self, features: int, hidden: int, update: bool) -> None:
        super().__init__()
        self.phi_e = nn.Sequential(*mlp(2 * hidden + 1 + features, hidden, hidden), nn.SiLU())
        self.phi_x = mlp(hidden, hidden, 1, bias=False)
        self.phi_h = mlp(2 * hidden, hidden, hidden) if update else None
        nn.init.zeros_(linear_at(self.phi_x, 2).weight)  # no forces before training

    def forward(
        self, h: Tensor, s: Tensor, towards: Tensor, neighbourhood: Neighbourhood
    ) -> tuple[Tensor, Tensor]:
        """See :func:`~spacetime_en.nn.layers.egcl.convolve`."""
        return convolve(self.phi_e, self.phi_x, self.phi_h, h, s, towards, neighbourhood)
