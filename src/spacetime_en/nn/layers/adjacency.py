"""Attention over edge attributes, the paper's adjacency attention (Eqs. 11-12), in four forms.

- ``"flattened"``: over time, on the vector of all edge attributes at once; the form that matches
  the published parameter count. Tied to one N, not permutation equivariant.
- ``"nodes"``: App. C as printed, over nodes in each frame, with N x N matrices. Tied to one N,
  not permutation equivariant.
- ``"edges"``: over time, per edge, with weights shared by all edges. For any N, permutation
  equivariant, also with neighbour lists if all frames share them.
- ``"matrices"``: Eqs. 11-12 as printed, over time, with N x N matrices K, Q, V acting on A(t) and
  attention weights pi(t, s) that are matrices, too. Tied to one N, not permutation equivariant.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.layers.attention import Attended, QKVAttention, Window, logit_scale

AdjacencyForm = Literal["flattened", "nodes", "edges", "matrices"]
TIED_TO_NODES = ("flattened", "nodes", "matrices")


def off_diagonal(a: Tensor) -> Tensor:
    """The entries i != j, row by row: (B, L, N, N, c) -> (B, L, N(N-1), c)."""
    B, L, N, _, c = a.shape
    # Without its first entry, the flattened matrix is N - 1 rows of N + 1 that end on the diagonal.
    rows = a.reshape(B, L, N * N, c)[:, :, 1:].reshape(B, L, N - 1, N + 1, c)
    return rows[:, :, :, :-1].reshape(B, L, N * (N - 1), c)


def with_diagonal(entries: Tensor, nodes: int) -> Tensor:
    """The inverse of :func:`off_diagonal`, zeros on the diagonal."""
    B, L, _, c = entries.shape
    rows = F.pad(entries.reshape(B, L, nodes - 1, nodes, c), (0, 0, 0, 1))
    flat = F.pad(rows.reshape(B, L, nodes * nodes - 1, c), (0, 0, 1, 0))
    return flat.reshape(B, L, nodes, nodes, c)


def as_matrices(a: Tensor) -> Tensor:
    """A(t) of every channel, without self-loops: (B, L, N, N, c) -> (B, L, c, N, N)."""
    edges = 1 - torch.eye(a.shape[2], dtype=a.dtype, device=a.device)
    return (a * edges.unsqueeze(-1)).movedim(-1, 2)


def frames_as_series(window: Window) -> Tensor | None:
    """The frames in which any node was observed, as one series, (B, L, 1); None if all."""
    return None if window.frames is None else window.frames.unsqueeze(2)


class FlattenedEdgeAttention(nn.Module):
    """Form (1): each frame is one token, the vector of all edge attributes.

    Args:
        nodes: number N of nodes.
        channels: number c of edge attributes; K, Q and V have width cN(N-1).
        scaled: divide the logits by the square root of that width.
    """

    def __init__(self, nodes: int, channels: int, scaled: bool) -> None:
        super().__init__()
        self.nodes = nodes
        self.attention = QKVAttention(channels * nodes * (nodes - 1), scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, N, c) -> the same, and the weights (B, 1, L, L) or None."""
        tokens = off_diagonal(a)  # (B, L, N(N-1), c)
        visible = window.visible_in(frames_as_series(window))
        attended, pi = self.attention(tokens.flatten(2).unsqueeze(1), visible, with_weights)
        return with_diagonal(attended.squeeze(1).view_as(tokens), self.nodes), pi


class NodeEdgeAttention(nn.Module):
    """Form (2): App. C, pi = softmax((A Q)(A K)^T / sqrt(N)) over nodes, A <- pi A V.

    Each channel is a separate matrix A(t); the N x N matrices K, Q, V are shared by them.

    Args:
        nodes: number N of nodes.
        scaled: divide the logits by sqrt(N).
    """

    def __init__(self, nodes: int, scaled: bool) -> None:
        super().__init__()
        self.attention = QKVAttention(nodes, scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, N, c) -> the same, and pi (B, L, c, N, N) or None. Frames do not interact."""
        matrices, pi = self.attention(as_matrices(a), None, with_weights)
        return matrices.movedim(2, -1), pi


class SharedEdgeAttention(nn.Module):
    """Form (3): each edge is a separate series, with weights shared by all edges.

    Args:
        channels: number c of edge attributes; K, Q and V are c x c.
        scaled: divide the logits by sqrt(c).
    """

    def __init__(self, channels: int, scaled: bool) -> None:
        super().__init__()
        self.attention = QKVAttention(channels, scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, K, c) -> the same, and the weights (B, NK, L, L) or None.

        Args:
            mask: True on edges whose two nodes were observed, (B, 1 or L, N, K).
        """
        series = a.flatten(2, 3).transpose(1, 2)  # (B, NK, L, c)
        there = None if window.observed is None else mask.expand(a.shape[:4]).flatten(2, 3)
        attended, pi = self.attention(series, window.visible_in(there), with_weights)
        return attended.transpose(1, 2).unflatten(2, a.shape[2:4]), pi


class MatrixEdgeAttention(nn.Module):
    """Form (4): Eqs. 11-12, with elementwise exp and division, and matrix products.

        Q(t) = Q A(t),  K(t) = K A(t),  V(t) = V A(t)
        A(t) <- sum_s pi(t, s) V(s),  pi(t, s) = exp(Q(t)^T K(s)) / sum_s' exp(Q(t)^T K(s'))

    Each channel is a separate matrix A(t); the N x N matrices K, Q, V are shared by them. The
    attention weights have c N^2 L^2 elements, for all pairs of frames.

    Args:
        nodes: number N of nodes.
        scaled: divide the logits by sqrt(N), as in App. C; if False, as in the main text.
    """

    def __init__(self, nodes: int, scaled: bool) -> None:
        super().__init__()
        self.q = nn.Linear(nodes, nodes, bias=False)
        self.k = nn.Linear(nodes, nodes, bias=False)
        self.v = nn.Linear(nodes, nodes, bias=False)
        self.scale = logit_scale(nodes, scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, N, c) -> the same, and pi_ij(t, s), (B, c, N, N, L, L), or None."""
        columns = as_matrices(a).mT  # of A(t); a Linear maps each to a column of, say, Q A(t)
        q, k, v = (linear(columns).mT for linear in (self.q, self.k, self.v))  # (B, L, c, N, N)
        logits = self.scale * torch.einsum("btcki,bsckj->bcijts", q, k)  # of Q(t)^T K(s)
        visible = window.visible_in(frames_as_series(window))
        if visible is not None:
            logits = logits.masked_fill(~visible[:, None, None], -torch.inf)
        pi = logits.softmax(-1)  # Eq. 12
        attended = torch.einsum("bcikts,bsckj->btijc", pi, v)  # Eq. 11
        return attended, pi if with_weights else None


def edge_attention(
    form: AdjacencyForm, nodes: int | None, channels: int, scaled: bool
) -> nn.Module:
    """The layer of the named form; `nodes` is needed by those that are tied to N."""
    if form == "edges":
        return SharedEdgeAttention(channels, scaled)
    assert nodes is not None
    if form == "nodes":
        return NodeEdgeAttention(nodes, scaled)
    if form == "matrices":
        return MatrixEdgeAttention(nodes, scaled)
    return FlattenedEdgeAttention(nodes, channels, scaled)
