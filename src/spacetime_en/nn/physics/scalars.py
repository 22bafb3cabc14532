"""Learned invariant scalars of pairs of nodes, from which energies are built."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.physics.force import MAX_ARCSINH, Pairs


class PairScalars(nn.Module):
    """u_ij = phi(h_i, h_j, s_ij), after rounds of messages m_ij = phi_e(h_i, h_j, s_ij).

        h_i <- h_i + phi_h(h_i, sum_j m_ij),    h_i = 0 initially.

    The rounds let the scalars of a pair depend on the surrounding nodes.

    Args:
        invariants: number of scalars s_ij of a pair.
        hidden: width of h and of the messages.
        layers: number of rounds of message passing.
        outputs: number of scalars u_ij.
    """

    def __init__(self, invariants: int, hidden: int, layers: int, outputs: int = 1) -> None:
        super().__init__()
        self.hidden = hidden
        width = 2 * hidden + invariants
        self.phi_e = nn.ModuleList(
            nn.Sequential(*mlp(width, hidden, hidden), nn.SiLU()) for _ in range(layers)
        )
        self.phi_h = nn.ModuleList(mlp(2 * hidden, hidden, hidden) for _ in range(layers))
        last = nn.Linear(hidden, outputs)
        nn.init.zeros_(last.weight)  # the scalars are 0 before training
        nn.init.zeros_(last.bias)
        self.phi = nn.Sequential(*mlp(width, hidden, hidden), nn.SiLU(), last)

    def forward(self, pairs: Pairs, s: Tensor) -> Tensor:
        """s, (B, 1, N, K, invariants), to u, (B, 1, N, K, outputs)."""
        mask = pairs.neighbourhood.mask.unsqueeze(-1)
        h = s.new_zeros(*s.shape[:3], self.hidden)
        for phi_e, phi_h in zip(self.phi_e, self.phi_h, strict=True):
            m_i = (phi_e(self._edges(pairs, h, s)) * mask).sum(3)
            h = h + phi_h(torch.cat([h, m_i], dim=-1))
        u: Tensor = self.phi(self._edges(pairs, h, s))
        return u.clamp(-MAX_ARCSINH, MAX_ARCSINH)

    def _edges(self, pairs: Pairs, h: Tensor, s: Tensor) -> Tensor:
        h_i = h.unsqueeze(3).expand(*s.shape[:4], -1)
        return torch.cat([h_i, pairs.neighbourhood.gather(h), s], dim=-1)
