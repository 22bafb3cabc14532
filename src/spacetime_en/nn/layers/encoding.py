"""Sinusoidal positional encodings of the frames (App. D)."""

import torch
from torch import Tensor

KAPPA = 10_000.0


def frame_index(observed: Tensor | None, like: Tensor) -> Tensor:
    """The index of each frame, 0 at the first observed one, (1 or B, L); `like`: (B, L, ...)."""
    index = torch.arange(like.shape[1], device=like.device)[None]
    if observed is not None:
        index = index - observed.int().argmax(1, keepdim=True)
    return index.to(like.dtype)


def sinusoid(index: Tensor, width: int) -> Tensor:
    """Channel 2j is sin(t / kappa^(2j/width)), channel 2j + 1 the cosine of the same angle.

    Args:
        index: t, (1 or B, L).
        width: d for W, n for X and Y, N^2 for Z.
    Returns: (1 or B, L, width).
    """
    channel = torch.arange(width, device=index.device)
    even = (channel - channel % 2).to(index.dtype)
    angle = index.unsqueeze(-1) / KAPPA ** (even / width)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())
