"""Attention over edge attributes, the paper's adjacency attention (Eqs. 11-12), in three forms.

- ``"flattened"``: over time, on the vector of all edge attributes at once. The form that the
  published parameter count belongs to. Tied to one N, not permutation equivariant.
- ``"nodes"``: App. C as printed, over nodes at each frame, with N x N matrices. Tied to one N,
  not permutation equivariant.
- ``"edges"``: over time, per edge, with weights shared by all edges. For any N, permutation
  equivariant, also with neighbour lists that stay the same over the frames.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.layers.attention import Attended, QKVAttention, Window

AdjacencyForm = Literal["flattened", "nodes", "edges"]
TIED_TO_NODES = ("flattened", "nodes")


def off_diagonal(a: Tensor) -> Tensor:
    """The entries i != j, row by row: (B, L, N, N, c) -> (B, L, N(N-1), c)."""
    B, L, N, _, c = a.shape
    # Without its first entry, the flat matrix has the diagonal at the end of rows of N + 1.
    rows = a.reshape(B, L, N * N, c)[:, :, 1:].reshape(B, L, N - 1, N + 1, c)
    return rows[:, :, :, :-1].reshape(B, L, N * (N - 1), c)


def with_diagonal(entries: Tensor, nodes: int) -> Tensor:
    """The inverse of :func:`off_diagonal`, zeros on the diagonal."""
    B, L, _, c = entries.shape
    rows = F.pad(entries.reshape(B, L, nodes - 1, nodes, c), (0, 0, 0, 1))
    flat = F.pad(rows.reshape(B, L, nodes * nodes - 1, c), (0, 0, 1, 0))
    return flat.reshape(B, L, nodes, nodes, c)


class FlattenedEdgeAttention(nn.Module):
    """Form (1): each frame is one token, the vector of all edge attributes.

    Args:
        nodes: number N of nodes.
        channels: number c of edge attributes; K, Q and V are cN(N-1) wide.
        scaled: logits over the square root of that width.
    """

    def __init__(self, nodes: int, channels: int, scaled: bool) -> None:
        super().__init__()
        self.nodes = nodes
        self.attention = QKVAttention(channels * nodes * (nodes - 1), scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, N, c) -> the same, and the weights (B, 1, L, L) or None."""
        tokens = off_diagonal(a)  # (B, L, N(N-1), c)
        frames = None if window.frames is None else window.frames.unsqueeze(2)
        visible = window.visible_in(frames)
        attended, pi = self.attention(tokens.flatten(2).unsqueeze(1), visible, with_weights)
        return with_diagonal(attended.squeeze(1).view_as(tokens), self.nodes), pi


class NodeEdgeAttention(nn.Module):
    """Form (2): App. C, pi = softmax((A Q)(A K)^T / sqrt(N)) over nodes, A <- pi A V.

    Each channel is a matrix A(t) of its own; the N x N matrices K, Q, V are shared by them.

    Args:
        nodes: number N of nodes.
        scaled: logits over sqrt(N).
    """

    def __init__(self, nodes: int, scaled: bool) -> None:
        super().__init__()
        self.attention = QKVAttention(nodes, scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, N, c) -> the same, and pi (B, L, c, N, N) or None. Time plays no part."""
        edges = 1 - torch.eye(a.shape[2], dtype=a.dtype, device=a.device)  # without self-loops
        matrices = (a * edges.unsqueeze(-1)).movedim(-1, 2)  # (B, L, c, N, N)
        matrices, pi = self.attention(matrices, None, with_weights)
        return matrices.movedim(2, -1), pi


class SharedEdgeAttention(nn.Module):
    """Form (3): each edge is a series of its own, the weights are shared by all edges.

    Args:
        channels: number c of edge attributes; K, Q and V are c x c.
        scaled: logits over sqrt(c).
    """

    def __init__(self, channels: int, scaled: bool) -> None:
        super().__init__()
        self.attention = QKVAttention(channels, scaled)

    def forward(self, a: Tensor, window: Window, mask: Tensor, with_weights: bool) -> Attended:
        """(B, L, N, K, c) -> the same, and the weights (B, NK, L, L) or None.

        Args:
            mask: the edges whose two nodes are there, (B, 1 or L, N, K).
        """
        series = a.flatten(2, 3).transpose(1, 2)  # (B, NK, L, c)
        there = None if window.observed is None else mask.expand(a.shape[:4]).flatten(2, 3)
        attended, pi = self.attention(series, window.visible_in(there), with_weights)
        return attended.transpose(1, 2).unflatten(2, a.shape[2:4]), pi


def edge_attention(
    form: AdjacencyForm, nodes: int | None, channels: int, scaled: bool
) -> nn.Module:
    """The layer of the named form; `nodes` is needed by the two that are tied to N."""
    if form == "edges":
        return SharedEdgeAttention(channels, scaled)
    assert nodes is not None
    if form == "nodes":
        return NodeEdgeAttention(nodes, scaled)
    return FlattenedEdgeAttention(nodes, channels, scaled)
