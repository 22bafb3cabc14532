"""Attention over time: one softmax(q k^T) v for features, positions, velocities and edges."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attended = tuple[Tensor, Tensor | None]  # the new values, and the attention weights if asked for


class Window(NamedTuple):
    """The frames of a batch: which were observed, and which may attend to which.

    Args:
        observed: (B, L), or None if all were.
        visible: (1 or B, 1, 1 or L, L), True where frame t may attend to frame s; None if
            every frame may attend to every other.
    """

    observed: Tensor | None = None
    visible: Tensor | None = None

    @classmethod
    def of(cls, x: Tensor, observed: Tensor | None, causal: bool) -> "Window":
        """The window of the frames x, (B, L, ...); if `causal`, t attends to s <= t alone."""
        if not causal:
            return cls(observed, None if observed is None else observed[:, None, None, :])
        frames = x.shape[1]
        past = torch.ones(frames, frames, dtype=torch.bool, device=x.device).tril()[None, None]
        if observed is None:
            return cls(None, past)
        # A missing frame may see itself: otherwise its row could be empty, and a softmax NaN.
        itself = torch.eye(frames, dtype=torch.bool, device=x.device)
        return cls(observed, past & (observed[:, None, None, :] | itself))


def attend(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float, with_weights: bool
) -> Attended:
    """softmax(scale q k^T) v over the frames s.

    The fused kernel needs memory linear in L, but does not show its weights; they are computed
    only when asked for.

    Args:
        q, k, v: (B, H, L, c), H independent series (nodes or edges).
        visible: as in :class:`Window`.
        scale: of the logits.
    Returns: (B, H, L, c), and the weights (B, H, L, L) or None.
    """
    if not with_weights:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=scale), None
    logits = scale * q @ k.mT
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    weights = logits.softmax(-1)
    return weights @ v, weights


class QKVAttention(nn.Module):
    """Key-query-value self-attention over time, without bias (Eqs. 5-6).

    Args:
        width: c of the vectors; K, Q and V are c x c.
        scaled: divide the logits by sqrt(c), as App. C does.
    """

    def __init__(self, width: int, scaled: bool) -> None:
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.scale = logit_scale(width, scaled)

    def forward(self, series: Tensor, visible: Tensor | None, with_weights: bool) -> Attended:
        """(B, H, L, c) -> the same, and the weights (B, H, L, L) or None."""
        q, k, v = self.q(series), self.k(series), self.v(series)
        return attend(q, k, v, visible, self.scale, with_weights)


def logit_scale(width: int, scaled: bool) -> float:
    """1/sqrt(width) (App. C), or 1 (main text)."""
    return float(max(width, 1)) ** -0.5 if scaled else 1.0
