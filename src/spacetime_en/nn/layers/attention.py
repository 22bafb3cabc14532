"""Attention over time: one softmax(q k^T) v for features, positions, velocities and edges."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attended = tuple[Tensor, Tensor | None]  # the new values, and the attention weights if requested


class Window(NamedTuple):
    """The frames of a batch: which nodes were observed in them, and which may attend to which.

    Args:
        observed: (B, L, N), or None if all nodes were observed in all frames.
        past: (L, L), True where s <= t, if attention is causal; None otherwise.
        visible: True where frame t of a node may attend to its frame s, (1 or B, 1 or N, 1 or L,
            L); None if every frame may attend to every other.
    """

    observed: Tensor | None = None
    past: Tensor | None = None
    visible: Tensor | None = None

    @classmethod
    def of(cls, x: Tensor, observed: Tensor | None, causal: bool) -> "Window":
        """The window of the frames x, (B, L, ...); if `causal`, t attends only to s <= t."""
        L, past = x.shape[1], None
        if causal:
            past = torch.ones(L, L, dtype=torch.bool, device=x.device).tril()
        window = cls(observed, past)
        return window._replace(visible=window.visible_in(observed))

    @property
    def frames(self) -> Tensor | None:
        """(B, L), True where any node was observed; None if all were."""
        return None if self.observed is None else self.observed.any(2)

    def visible_in(self, observed: Tensor | None) -> Tensor | None:
        """The mask `visible` for H series, from the frames in which each was observed (B, L, H)."""
        if observed is None:
            return None if self.past is None else self.past[None, None]
        seen = observed.transpose(1, 2)  # (B, H, L)
        # No row may be empty, or its softmax would be NaN: unobserved series see all frames, ...
        visible = (seen | ~seen.any(2, keepdim=True)).unsqueeze(2)  # (B, H, 1, L)
        if self.past is None:
            return visible
        itself = torch.eye(self.past.shape[0], dtype=torch.bool, device=seen.device)
        return self.past & (visible | itself)  # ... and a missing frame sees itself.


def attend(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float, with_weights: bool
) -> Attended:
    """softmax(scale q k^T) v over the frames s.

    The fused kernel needs memory linear in L, but does not return its weights; they are computed
    only if requested.

    Args:
        q, k, v: (B, H, L, c), for H independent series (nodes or edges).
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
        width: width c of the tokens; K, Q and V are c x c.
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
