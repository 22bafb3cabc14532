"""Spatial attention whose messages depend on several distances.

Each node has C vectors V_i alongside its features h_i. With its position they define R virtual
points, where it has been or may be going:

    p_i^r = x_i + sum_c A_rc V_ic.

A message depends on the distances between the virtual points of the edge's two nodes, and updates
vectors along the differences of these points:

    D_ij^r = p_i^r - p_j^r,             m_ij = phi_e(h_i, h_j, log|D_ij^r|, a_ij),
    alpha_ij = softmax_j(W_a m_ij),     m_i = sum_j alpha_ij m_ij,
    V_i <- V_i + B sum_j alpha_ij (W_p m_ij)_r D_ij^r / |D_ij^r|,
    (s_i, g_i) = phi_h(h_i, m_i, invariants of V_i),   h_i <- h_i + s_i,   V_i <- V_i + g_i (M V_i).

Each head has its own alpha, for its share of the channels of m and of the points.

Scalars are functions of lengths and dot products, and vectors are sums of vectors weighted by
scalars, so the layer is equivariant whatever its weights. Channels are the last axis, (B, N, n, C),
so that mixing them is one matrix product.

On a CPU, the messages of large graphs are computed for about 16,000 edges at a time, which
stay in its caches, and recomputed in the backward pass, so that little is stored for each edge.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from spacetime_en.nn.layers.egcl import is_unmodified, mlp
from spacetime_en.nn.layers.messages import runs_eagerly
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.pieces import by_pieces, even_cuts

HEADS = 4
# Distances below which two points count as coinciding, in the model's units of length:
CLOSE, TOUCHING = 1e-2, 1e-1  # for the logarithm of the distance, and for the direction
# Number of edges above which a graph is large, and of a piece of it.
LARGE, PIECE = 1 << 16, 1 << 14

Received = tuple[Tensor, Tensor]


class Invariants(nn.Module):
    """Rotation invariants of vectors: lengths and dot products of linear combinations of them.

    Args:
        channels: number C of vectors.
        outputs: number of linear combinations; there are twice as many invariants.
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(channels, outputs) * channels**-0.5)
        self.other = nn.Parameter(torch.randn(channels, outputs) * channels**-0.5)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The invariants, (B, N, 2 outputs), and the second combinations, (B, N, n, outputs)."""
        one, other = vectors @ self.one, vectors @ self.other
        products = torch.cat([(one * other).sum(-2), one.square().sum(-2)], dim=-1)
        return torch.asinh(products), other


class VirtualPointAttention(nn.Module):
    """One layer of message passing.

    Args:
        hidden: width of features and messages, a multiple of the number of heads.
        channels: number C of vectors per node.
        points: number R of virtual points per node, also a multiple of the number of heads; the
            first is initially the node itself.
        edge_scalars: number of further scalars per edge.
    """

    def __init__(self, hidden: int, channels: int, points: int, edge_scalars: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.offsets = nn.Parameter(torch.randn(channels, points) * channels**-0.5)  # A
        with torch.no_grad():
            self.offsets[:, 0] = 0
        self.receiver = nn.Linear(hidden, hidden)
        self.sender = nn.Linear(hidden, hidden, bias=False)
        self.edge = nn.Linear(points + edge_scalars, hidden, bias=False)
        self.message = nn.Linear(hidden, hidden)
        self.logits = nn.Linear(hidden, HEADS)
        self.pull = nn.Linear(hidden, points)  # W_p
        self.gather = nn.Parameter(0.5 * torch.randn(points, channels) * points**-0.5)  # B
        self.invariants = Invariants(channels, channels)
        self.node = mlp(2 * hidden + 2 * channels, hidden, hidden + channels)

    def forward(
        self, h: Tensor, vectors: Tensor, x_ij: Tensor, a_ij: Tensor, edges: Neighbourhood
    ) -> tuple[Tensor, Tensor]:
        """Features (B, N, hidden) and vectors (B, N, n, C), to the same shapes.

        Args:
            x_ij: differences of positions, (B, N, K, n).
            a_ij: further scalars of edges, (B, N, K, edge_scalars).
        """
        g = self.norm(h)
        points = vectors @ self.offsets  # p - x, (B, N, n, R)
        m_i, pull = self._messages(points, g, x_ij, a_ij, edges)
        vectors = vectors + pull @ self.gather

        invariants, mixed = self.invariants(vectors)
        update = self.node(torch.cat([g, m_i, invariants], dim=-1))
        scalars, gates = update.split([h.shape[-1], vectors.shape[-1]], dim=-1)
        return h + scalars, vectors + gates.unsqueeze(-2) * mixed

    def _messages(
        self, points: Tensor, g: Tensor, x_ij: Tensor, a_ij: Tensor, edges: Neighbourhood
    ) -> Received:
        """The aggregated messages m_i, (B, N, hidden), and pulls on points, (B, N, n, R)."""
        mask = edges.mask.squeeze(1).expand(x_ij.shape[:3])
        z_i, z_j = self.receiver(g), self.sender(g)
        if not self._in_pieces(x_ij):
            p = points.flatten(2)
            p_j, z_j = (edges.senders_of(t.unsqueeze(1)).squeeze(1) for t in (p, z_j))
            return self.received(p, z_i, p_j, z_j, x_ij, a_ij, mask)
        B, N, K, _ = x_ij.shape
        # (`by_pieces` needs points twice: as rows of receivers, and as a tensor read by all.)
        p_i, p, z_i, z = (t.reshape(B * N, -1) for t in (points, points, z_i, z_j))

        def receivers(p_i: Tensor, z_i: Tensor, senders: Tensor, *of_edges: Tensor) -> Received:
            return self.received(p_i, z_i, p[senders], z[senders], *of_edges)

        def piece(_: int, *rows: Tensor) -> Received:
            out: Received = checkpoint(
                receivers, *rows, use_reentrant=False, preserve_rng_state=False
            )
            return out

        rows = (p_i, z_i, edges.senders, *(t.flatten(0, 1) for t in (x_ij, a_ij, mask)))
        weights = [w for linear in self.of_edges for w in linear.parameters()]
        cuts = even_cuts(B * N, -(-B * N * K // PIECE))
        m_i, pull = by_pieces(piece, cuts, rows, (p, z, *weights))
        return m_i.unflatten(0, (B, N)), pull.unflatten(0, (B, N))

    @property
    def of_edges(self) -> tuple[nn.Linear, ...]:
        """The layers that act on edges."""
        return self.edge, self.message, self.logits, self.pull

    def _in_pieces(self, x_ij: Tensor) -> bool:
        """Whether the graph is large, and its messages may be computed on other threads."""
        return (
            runs_eagerly()  # (the compiler traces no further)
            and x_ij.device.type == "cpu"
            and x_ij[..., 0].numel() > LARGE
            and is_unmodified(*self.of_edges)
        )

    def received(
        self, p_i: Tensor, z_i: Tensor, p_j: Tensor, z_j: Tensor, *of_edges: Tensor
    ) -> Received:
        """The aggregated messages of nodes i from their neighbours j.

        Args:
            p_i, p_j: virtual points relative to the nodes, (..., n R) and (..., K, n R).
            z_i, z_j: their parts of the first layer of phi_e, (..., hidden) and (..., K, hidden).
            of_edges: x_ij and a_ij as in `forward`, and the mask of existing edges, (..., K).
        Returns: m_i, (..., hidden), and pulls on the points, (..., n, R).
        """
        x_ij, a_ij, mask = of_edges
        n = x_ij.shape[-1]
        difference = (p_i.unsqueeze(-2) - p_j).unflatten(-1, (n, -1))
        d_ij = x_ij.unsqueeze(-1) + difference  # (..., K, n, R)
        square = d_ij.square().sum(-2)
        s_ij = torch.cat([(square + CLOSE**2).log() / 2, a_ij], dim=-1)
        z_ij = self.edge(s_ij).add_(z_i.unsqueeze(-2)).add_(z_j)
        m_ij = F.silu(self.message(F.silu(z_ij)))  # (..., K, hidden)

        alpha = self.attention(m_ij, mask.unsqueeze(-1))  # (..., K, heads)
        along = self.pull(m_ij).unflatten(-1, (HEADS, -1)) * alpha.unsqueeze(-1)
        weight = along.flatten(-2) * (square + TOUCHING**2).rsqrt()  # (..., K, R)
        return _by_heads(alpha, m_ij), (weight.unsqueeze(-2) * d_ij).sum(-3)

    def attention(self, m_ij: Tensor, mask: Tensor) -> Tensor:
        """Attention weights in each head, (..., K, heads); 0 where there is no edge."""
        logits = self.logits(m_ij).masked_fill(~mask, torch.finfo(m_ij.dtype).min)
        weights: Tensor = logits.softmax(-2) * mask
        return weights


def _by_heads(alpha: Tensor, m_ij: Tensor) -> Tensor:
    """sum_j alpha_ij m_ij, each head for its share of the channels, -> (..., hidden).

    (A matrix product of which only the diagonal blocks are needed takes less time than elementwise
    products, because it writes nothing of the size of m.)
    """
    every: Tensor = alpha.mT @ m_ij  # (..., heads, hidden)
    blocks: Tensor = every.unflatten(-1, (HEADS, -1)).diagonal(dim1=-3, dim2=-2)
    return blocks.mT.flatten(-2)
