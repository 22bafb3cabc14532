"""Who sends messages to whom: the only place that knows complete graphs from neighbour lists.

Every tensor over edges has axes (B, L, N, K, channels): node i, its k-th neighbour j. For a
complete graph K = N, j = k, and node tensors are broadcast; with neighbour lists they are
gathered. The mathematics above this file is the same for both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from spacetime_en import geometry
from spacetime_en.graph import SpacetimeGraph


class Neighbourhood(NamedTuple):
    """The edges of a graph.

    Args:
        mask: (B, 1 or L, N, K, 1), 1 on real edges i <- j, j != i, and 0 elsewhere.
        senders: (B, 1 or L, N, K), the node j; None for a complete graph.
        cell: (B, n, n) periodic cell, or None.
    """

    mask: Tensor
    senders: Tensor | None = None
    cell: Tensor | None = None

    @classmethod
    def of(cls, graph: SpacetimeGraph, cell: Tensor | None = None) -> "Neighbourhood":
        """The edges of `graph`; `cell` is its box in the units of the positions at hand."""
        senders = None if graph.neighbours is None else graph.neighbours.clamp(min=0)
        return cls(graph.edge_mask.unsqueeze(-1).to(graph.x.dtype), senders, cell)

    def gather(self, h: Tensor) -> Tensor:
        """h_j for every edge, (B, L, N, c) -> (B, L, N or 1, K, c)."""
        if self.senders is None:
            return h.unsqueeze(2)  # (B, L, 1, N, c), broadcast over i
        B, L, N, c = h.shape
        # index_select on flat rows: its backward is one index_add, linear in the edges.
        frame = torch.arange(B * L, device=h.device).view(B, L, 1, 1)
        rows = (frame * N + self.senders).flatten()
        return h.reshape(B * L * N, c).index_select(0, rows).view(B, L, N, -1, c)

    def differences(self, x: Tensor) -> Tensor:
        """x_i - x_j for every edge, the minimum image in a box, (B, L, N, n) -> (B, L, N, K, n)."""
        return geometry.minimum_image(x.unsqueeze(3) - self.gather(x), self.cell)

    def sum(self, m: Tensor) -> Tensor:
        """Sum over the neighbours j != i, (B, L, N, K, c) -> (B, L, N, c)."""
        return (m * self.mask).sum(3)

    @property
    def normaliser(self) -> Tensor:
        """C of Eq. 2, one over the number of neighbours, (B, 1 or L, N, 1)."""
        return 1 / self.mask.sum(3).clamp(min=1)
