"""Batches of windows for training and validation, in an order that depends on a seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from spacetime_en.data.sizes import of_like_size
from spacetime_en.data.windows import Windows
from spacetime_en.graph import Forecast, SpacetimeGraph


class Batch:
    """This process's part of a batch.

    Args:
        graph, target: the windows and their targets.
        rows: indices of the windows in the data set, (b,).
        weight: factor for a sum over this part, such that the mean over all processes is the mean
            over the whole batch, whatever the sizes of the parts.
    """

    def __init__(
        self, graph: SpacetimeGraph, target: Forecast, rows: Tensor, weight: float
    ) -> None:
        self.graph, self.target, self.rows, self.weight = graph, target, rows, weight

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """Move to a device and a precision."""
        if (self.graph.x.device, self.graph.x.dtype) == (device, dtype):
            return self
        graph, target = self.graph.to(device, dtype), self.target.to(device, dtype)
        return Batch(graph, target, self.rows, self.weight)


class Batches:
    """Batches `start` to `stop` of an endless sequence of epochs.

    Batch k does not depend on earlier ones: the order of an epoch depends only on the seed and on
    its number, so training can resume at any step as if it had never stopped. Each process reads
    only its own rows of a batch. If windows differ in their number of nodes, batches are made of
    windows of similar size, to reduce padding.

    Args:
        windows: the data.
        size: windows per batch, summed over all processes; the last batch of an epoch may be
            smaller.
        seed: seed of the order; None: in the order of the data, or of the windows' sizes.
        start, stop: range of batches; stop None: to the end of the first epoch.
        rank, world: the number of this process, and the number of processes.
    """

    def __init__(
        self,
        windows: Windows,
        size: int,
        *,
        seed: int | None = None,
        start: int = 0,
        stop: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.windows, self.size, self.seed = windows, size, seed
        self.per_epoch = -(-len(windows) // size)
        self.start, self.stop = start, self.per_epoch if stop is None else stop
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Batch]:
        order, epoch = torch.empty(0, dtype=torch.long), -1
        for step in range(self.start, self.stop):
            if step // self.per_epoch != epoch:
                epoch = step // self.per_epoch
                order = self._order(epoch)
            first = step % self.per_epoch * self.size
            yield self._batch(order[first : first + self.size])

    def _order(self, epoch: int) -> Tensor:
        # (A user's look-alike of Windows holds graphs built by hand.)
        sizes = self.windows.node_counts if getattr(self.windows, "ragged", False) else None
        if self.seed is None:
            order = torch.arange(len(self.windows))
            return order if sizes is None else torch.from_numpy(sizes.argsort(kind="stable"))
        generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        order = torch.randperm(len(self.windows), generator=generator)
        return order if sizes is None else of_like_size(order, sizes, self.size, generator)

    def _batch(self, rows: Tensor) -> Batch:
        mine = rows[self.rank :: self.world]
        weight = self.world / len(rows)
        if len(mine) == 0:  # fewer windows than processes: take part with weight 0
            mine, weight = rows[:1], 0.0
        return Batch(*self.windows[mine], mine, weight)


def derive_seed(*numbers: int) -> int:
    """One seed from several numbers; different numbers give unrelated seeds."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
