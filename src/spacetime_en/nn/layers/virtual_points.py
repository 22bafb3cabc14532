"""Attention in space whose messages see several distances at once.

Each node carries C vectors V_i beside its features h_i. Together with its position they place R
virtual points, where it has been or may be going:

    p_i^r = x_i + sum_c A_rc V_ic.

An edge sees the distances between the virtual points of its two ends, and its message is passed on
along their differences:

    D_ij^r = p_i^r - p_j^r,             m_ij = phi_e(h_i, h_j, log|D_ij^r|, a_ij),
    alpha_ij = softmax_j(W_a m_ij),     m_i = sum_j alpha_ij m_ij,
    V_i <- V_i + B sum_j alpha_ij (W_p m_ij)_r D_ij^r / |D_ij^r|,
    (s_i, g_i) = phi_h(h_i, m_i, invariants of V_i),   h_i <- h_i + s_i,   V_i <- V_i + g_i (M V_i).

Each of the heads has its own alpha, for its part of the channels of m and of the points.

Scalars come from lengths and dot products alone, and vectors are sums of vectors weighted with
scalars: the layer is equivariant whatever its weights. Channels are the last axis, (B, N, n, C), so
that mixing them is one product of matrices.

On a CPU, messages of large graphs are computed for some ten thousand edges at a time, which stay in
its caches, and again in the backward pass, so that memory holds few numbers for each edge.
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
# Distances below which two points count as one, in the model's units of length.
CLOSE, TOUCHING = 1e-2, 1e-1  # for their logarithm, and for the direction from one to the other
# Edges of a graph that is large, and of a piece of it.
LARGE, PIECE = 1 << 16, 1 << 14

Received = tuple[Tensor, Tensor]


class Invariants(nn.Module):
    """What does not change when vectors are rotated: lengths and dot products of mixtures of them.

    Args:
        channels: number C of vectors.
        outputs: number of mixtures; twice as many invariants.
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(channels, outputs) * channels**-0.5)
        self.other = nn.Parameter(torch.randn(channels, outputs) * channels**-0.5)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The invariants, (B, N, 2 outputs), and the second mixtures, (B, N, n, outputs)."""
        one, other = vectors @ self.one, vectors @ self.other
        products = torch.cat([(one * other).sum(-2), one.square().sum(-2)], dim=-1)
        return torch.asinh(products), other


class VirtualPointAttention(nn.Module):
    """One layer of messages between nodes.

    Args:
        hidden: width of features and messages, a multiple of the number of heads.
        channels: number C of vectors of a node.
        points: number R of virtual points of a node, a multiple of the number of heads, too; the
            first is the node itself.
        edge_scalars: number of further scalars of an edge.
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
        self.pull = nn.Linear(hidden, points)  # W
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
        """What every node receives: m_i, (B, N, hidden), and pulls on its points, (B, N, n, R)."""
        mask = edges.mask.squeeze(1).expand(x_ij.shape[:3])
        z_i, z_j = self.receiver(g), self.sender(g)
        if not self._in_pieces(x_ij):
            p = points.flatten(2)
            p_j, z_j = (edges.senders_of(t.unsqueeze(1)).squeeze(1) for t in (p, z_j))
            return self.received(p, z_i, p_j, z_j, x_ij, a_ij, mask)
        B, N, K, _ = x_ij.shape
        # (Points twice, for `by_pieces`: as rows of receivers, and as a tensor that all read.)
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
        """The layers that see each edge."""
        return self.edge, self.message, self.logits, self.pull

    def _in_pieces(self, x_ij: Tensor) -> bool:
        """Whether the graph is large, and nothing forbids to compute messages on other threads."""
        return (
            runs_eagerly()  # (the compiler traces no further)
            and x_ij.device.type == "cpu"
            and x_ij[..., 0].numel() > LARGE
            and is_unmodified(*self.of_edges)
        )

    def received(
        self, p_i: Tensor, z_i: Tensor, p_j: Tensor, z_j: Tensor, *of_edges: Tensor
    ) -> Received:
        """What nodes i receive from their neighbours j.

        Args:
            p_i, p_j: virtual points relative to the nodes, (..., n R) and (..., K, n R).
            z_i, z_j: their parts of the first layer of phi_e, (..., hidden) and (..., K, hidden).
            of_edges: x_ij and a_ij as in `forward`, and where an edge exists, (..., K).
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
        """Weights of the neighbours in each head, (..., K, heads); 0 where there are none."""
        logits = self.logits(m_ij).masked_fill(~mask, torch.finfo(m_ij.dtype).min)
        weights: Tensor = logits.softmax(-2) * mask
        return weights


def _by_heads(alpha: Tensor, m_ij: Tensor) -> Tensor:
    """sum_j alpha_ij m_ij, each head for its part of the channels, -> (..., hidden).

    (A product of matrices, of which only the diagonal blocks are needed, takes less time than the
    products of numbers, because nothing of the size of m is written.)
    """
    every: Tensor = alpha.mT @ m_ij  # (..., heads, hidden)
    blocks: Tensor = every.unflatten(-1, (HEADS, -1)).diagonal(dim1=-3, dim2=-2)
    return blocks.mT.flatten(-2)
