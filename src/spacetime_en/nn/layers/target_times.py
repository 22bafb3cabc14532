"""Interpolation between the few target times at which a function is known."""

from __future__ import annotations

import torch
from torch import Tensor


def hat_functions(times: Tensor, known: Tensor) -> Tensor:
    """Weights for linear interpolation between known times, constant outside of them.

    Args:
        times: (B, T).
        known: increasing, (S,).
    Returns: (B, T, S), which sum to 1 over S.
    """
    if known.shape[0] == 1:
        return torch.ones_like(times).unsqueeze(-1)
    steps = known.diff()
    rise = ((times.unsqueeze(-1) - known[:-1]) / steps).clamp(0, 1)  # (B, T, S - 1)
    one = torch.ones_like(rise[..., :1])
    # A hat rises from its left neighbour's time to its own, and falls to its right neighbour's.
    return torch.cat([one, rise], dim=-1) - torch.cat([rise, torch.zeros_like(one)], dim=-1)
