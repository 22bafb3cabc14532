"""Batches of windows of similar size, which reduces padding to each batch's largest window."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POOL = 64  # batches whose windows are sorted together: more waste less, but mix windows less


def of_like_size(
    order: Tensor, counts: NDArray[np.int64], size: int, generator: torch.Generator
) -> Tensor:
    """Reorder windows so that each batch holds windows of similar size.

    Windows are sorted within groups of a few batches, and the batches shuffled, so batches differ
    between epochs. The last, smaller batch also holds windows of similar size, whatever that is.

    Args:
        order: of windows, (W,).
        counts: the number of nodes of each window, (W,).
        size: windows in a batch.
        generator: to shuffle the batches.
    Returns: (W,), a permutation of `order`.
    """
    sizes = torch.from_numpy(np.ascontiguousarray(counts))
    pools = [pool[sizes[pool].argsort(stable=True)] for pool in order.split(POOL * size)]
    full, left = divmod(len(pools[-1]), size)
    first = int(torch.randint(full + 1, (), generator=generator)) * size
    smaller = pools[-1][first : first + left]
    pools[-1] = torch.cat([pools[-1][:first], pools[-1][first + left :]])
    batches = torch.cat(pools).view(-1, size)
    shuffled = batches[torch.randperm(len(batches), generator=generator)]
    return torch.cat([shuffled.flatten(), smaller])


def share_of_padding(order: Tensor, counts: NDArray[np.int64], size: int) -> float:
    """The fraction of node places that are padding in batches of `size` in this order."""
    batches = torch.from_numpy(np.ascontiguousarray(counts))[order].split(size)
    places = sum(len(batch) * int(batch.max()) for batch in batches)
    return 1 - float(counts.sum()) / places
