"""Equivariant temporal attention, per node and over the frames (Eqs. 5-10, App. C)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.layers.attention import Attended, QKVAttention, Window, attend, logit_scale


class AttentionMaps(NamedTuple):
    """The attention weights of one block; None where the block has no such attention.

    Weights sum to one over the last axis. Rows of masked frames are meaningless.

    Args:
        features: alpha_i(t, s), (B, N, L, L).
        positions: beta_i(t, s), (B, N, L, L).
        velocities: gamma_i(t, s), (B, N, L, L).
        edges: pi; its shape depends on the form, see :mod:`spacetime_en.nn.layers.adjacency`.
    """

    features: Tensor | None = None
    positions: Tensor | None = None
    velocities: Tensor | None = None
    edges: Tensor | None = None


def position_attention(
    x: Tensor, window: Window, scale: float, step: float, with_weights: bool
) -> Attended:
    """xi~(t) = xi(t) + B sum_s beta(t, s) (xi(s) - xi(t)), beta = softmax |xi(t) - xi(s)|^2.

    Eqs. 7-8. The sum may include s = t, whose term is zero, and the |xi(t)|^2 of the expanded
    square cancels in the softmax over s. This leaves dot products of vectors with n + 1 components,

        (-2 xi(t), 1) . (xi(s), |xi(s)|^2) = |xi(t) - xi(s)|^2 - |xi(t)|^2,

    which a fused attention kernel computes without an L x L matrix.

    Args:
        x: (B, N, L, n).
        step: the factor B of Eq. 7.
    Returns: (B, N, L, n), and beta (B, N, L, L) or None.
    """
    # Relative to the first observed frame, because far from the origin |xi|^2 would lose all digits
    # in float32. Missing frames are zeroed.
    u = x - _first_observed(x, window.observed)
    if window.observed is not None:
        u = u.masked_fill(~window.observed.transpose(1, 2).unsqueeze(-1), 0.0)
    q = F.pad(-2 * u, (0, 1), value=1.0)
    k = torch.cat([u, u.square().sum(-1, keepdim=True)], dim=-1)
    # The fused kernel needs values as wide as the keys; the padding column is then removed.
    mean, beta = attend(q, k, F.pad(u, (0, 1)), window.visible, scale, with_weights)
    return x + step * (mean[..., :-1] - u), beta


def _first_observed(x: Tensor, observed: Tensor | None) -> Tensor:
    """The first frame in which each node was observed, (B, N, L, n) -> (B, N, 1, n)."""
    if observed is None:
        return x[:, :, :1]
    first = observed.int().argmax(1)[..., None, None]  # (B, N, 1, 1)
    return x.gather(2, first.expand(-1, -1, 1, x.shape[3]))


def velocity_attention(
    v: Tensor, visible: Tensor | None, scale: float, with_weights: bool
) -> Attended:
    """omega~(t) = sum_s gamma(t, s) omega(s), gamma = softmax omega(t) . omega(s) (Eqs. 9-10).

    (B, N, L, n) -> the same, and gamma (B, N, L, L) or None.
    """
    return attend(v, v, v, visible, scale, with_weights)


class ETAL(nn.Module):
    """Equivariant temporal attention layer, or, if not `equivariant`, learned attention throughout.

    Args:
        features: number d of node features.
        dims: space dimensions n, used only by the ablation, whose matrices are n x n.
        equivariant: attend by distances and inner products; if False, by learned K, Q, V.
        scaled: divide logits by sqrt(d) and sqrt(n), as in App. C; if False, as in the main text.
        step: the factor B of Eq. 7.
    """

    def __init__(
        self, features: int, dims: int, equivariant: bool, scaled: bool, step: float
    ) -> None:
        super().__init__()
        self.scaled = scaled
        self.step = step
        self.features = QKVAttention(features, scaled)
        self.positions = None if equivariant else QKVAttention(dims, scaled)
        self.velocities = None if equivariant else QKVAttention(dims, scaled)

    def forward(
        self, h: Tensor, x: Tensor, v: Tensor, window: Window, with_weights: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMaps]:
        """h: (B, L, N, d), x and v: (B, L, N, n) -> the same, and the attention maps."""
        # Each node is a separate series: (B, L, N, c) -> (B, N, L, c).
        h, x, v = (t.transpose(1, 2) for t in (h, x, v))
        visible = window.visible
        scale = logit_scale(x.shape[-1], self.scaled)
        h, alpha = self.features(h, visible, with_weights)
        if self.positions is None or self.velocities is None:
            x, beta = position_attention(x, window, scale, self.step, with_weights)
            v, gamma = velocity_attention(v, visible, scale, with_weights)
        else:
            x, beta = self.positions(x, visible, with_weights)
            v, gamma = self.velocities(v, visible, with_weights)
        h, x, v = (t.transpose(1, 2) for t in (h, x, v))
        return h, x, v, AttentionMaps(alpha, beta, gamma)
