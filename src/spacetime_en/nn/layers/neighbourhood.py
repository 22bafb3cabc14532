"""The edges of a graph: the only place that distinguishes complete graphs from neighbour lists.

Every tensor over edges has axes (B, L, N, K, channels), for node i and its k-th neighbour j. For a
complete graph K = N, j = k, and positions are broadcast; with neighbour lists they are gathered.
The code that uses this class is the same for both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from spacetime_en import geometry
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.nn.layers.messages import Edges


class Neighbourhood(NamedTuple):
    """The edges of a graph.

    Args:
        mask: (B, 1 or L, N, K), True on existing edges i <- j, j != i.
        senders: the index of j among the nodes of all graphs and frames, (BLN, K).
        complete: whether the graph is complete.
        cell: (B, n, n) periodic cell, or None.
        normaliser: C of Eq. 2, one over the number of neighbours, (B, 1 or L, N, 1).
    """

    mask: Tensor
    senders: Tensor
    complete: bool
    cell: Tensor | None
    normaliser: Tensor

    @classmethod
    def of(cls, graph: SpacetimeGraph, cell: Tensor | None = None) -> "Neighbourhood":
        """The edges of `graph`; `cell` is its box in the units of the positions to be used."""
        B, L, N, _ = graph.x.shape
        mask = graph.edge_mask
        j = graph.neighbours
        j = torch.arange(N, device=mask.device) if j is None else j.clamp(min=0)
        frame = N * torch.arange(B * L, device=mask.device).view(B, L, 1, 1)
        senders = (frame + j).expand(B, L, N, mask.shape[3]).flatten(0, 2)
        normaliser = 1 / mask.sum(3).clamp(min=1).to(graph.x.dtype).unsqueeze(-1)
        return cls(mask, senders, graph.neighbours is None, cell, normaliser)

    def differences(self, x: Tensor) -> Tensor:
        """x_i - x_j for every edge (minimum image in a box), (B, L, N, n) -> (B, L, N, K, n)."""
        return geometry.minimum_image(x.unsqueeze(3) - self.senders_of(x), self.cell)

    def senders_of(self, h: Tensor) -> Tensor:
        """h_j to be broadcast over edges, (B, L, N, c) -> (B, L, 1 or N, K, c)."""
        return h.unsqueeze(2) if self.complete else self.gather(h)

    def gather(self, h: Tensor) -> Tensor:
        """h_j for every edge, (B, L, N, c) -> (B, L, N, K, c)."""
        B, L, N, c = h.shape
        # index_select on flat rows, whose backward is one index_add, linear in the edges.
        return h.reshape(-1, c).index_select(0, self.senders.flatten()).view(B, L, N, -1, c)

    def sum_at_senders(self, m: Tensor) -> Tensor:
        """The sum over the outgoing edges of each node, (B, L, N, K, c) -> (B, L, N, c)."""
        if self.complete:
            return m.sum(2)
        B, L, N, _, c = m.shape
        total = m.new_zeros(B * L * N, c).index_add(0, self.senders.flatten(), m.flatten(0, 3))
        return total.view(B, L, N, c)

    def select(self, rows: Tensor) -> "Neighbourhood":
        """The edges of some graphs of a single-frame batch; a graph may be repeated."""
        mask, N = self.mask[rows], self.mask.shape[2]
        local = self.senders.view(-1, N, self.senders.shape[1])[rows]  # (B', N, K)
        moved = torch.arange(rows.shape[0], device=rows.device) - rows
        senders = (local + N * moved.view(-1, 1, 1)).flatten(0, 1)
        cell = None if self.cell is None else self.cell[rows]
        return Neighbourhood(mask, senders, self.complete, cell, self.normaliser[rows])

    def frames_as_graphs(self, L: int) -> "Neighbourhood":
        """The same edges with every frame as a separate graph: B becomes B L, and L becomes 1."""
        mask, normaliser = (
            t.expand(-1, L, -1, -1).flatten(0, 1).unsqueeze(1) for t in (self.mask, self.normaliser)
        )
        cell = None if self.cell is None else self.cell.repeat_interleave(L, 0)
        return self._replace(mask=mask, normaliser=normaliser, cell=cell)

    def edges(self, s: Tensor, x: Tensor) -> Edges:
        """All edges as rows, from their scalars (B, L, N, K, c) and differences (B, L, N, K, n)."""
        mask = self.mask.expand(s.shape[:4])
        return Edges(s.flatten(0, 2), x.flatten(0, 2), self.senders, mask.flatten(0, 2))
