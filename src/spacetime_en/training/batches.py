"""Batches for training: whole tensors cut from windows, in an order that a seed fixes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from spacetime_en.data.windows import Windows
from spacetime_en.graph import Forecast, SpacetimeGraph


class Batch:
    """This process's part of a batch.

    Args:
        graph, target: the windows.
        rows: their numbers in the data set, (b,).
        weight: what to multiply the sum over the part with, so that the mean over all processes is
            the mean over the whole batch, whatever the sizes of the parts.
    """

    def __init__(
        self, graph: SpacetimeGraph, target: Forecast, rows: Tensor, weight: float
    ) -> None:
        self.graph, self.target, self.rows, self.weight = graph, target, rows, weight

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The same on another device, in another precision."""
        if (self.graph.x.device, self.graph.x.dtype) == (device, dtype):
            return self
        graph, target = self.graph.to(device, dtype), self.target.to(device, dtype)
        return Batch(graph, target, self.rows, self.weight)


class Batches:
    """Batches `start` to `stop` of endless passes over the windows.

    Batch k does not depend on those before it: the order of each pass comes from the seed and the
    number of the pass. So training goes on at any step as if it had never stopped. Each process
    reads its own rows of every batch only.

    Args:
        windows: the data.
        size: windows in a batch, those of all processes together; the last of a pass may be
            smaller.
        seed: of the order; None: as they stand.
        start, stop: which batches; stop None: to the end of the first pass.
        rank, world: the number of this process, and how many there are.
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
        self.per_pass = -(-len(windows) // size)
        self.start, self.stop = start, self.per_pass if stop is None else stop
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Batch]:
        order, epoch = torch.empty(0, dtype=torch.long), -1
        for step in range(self.start, self.stop):
            if step // self.per_pass != epoch:
                epoch = step // self.per_pass
                order = self._order(epoch)
            first = step % self.per_pass * self.size
            yield self._batch(order[first : first + self.size])

    def _order(self, epoch: int) -> Tensor:
        if self.seed is None:
            return torch.arange(len(self.windows))
        generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        return torch.randperm(len(self.windows), generator=generator)

    def _batch(self, rows: Tensor) -> Batch:
        mine = rows[self.rank :: self.world]
        weight = self.world / len(rows)
        if len(mine) == 0:  # fewer windows than processes: take part, and count for nothing
            mine, weight = rows[:1], 0.0
        return Batch(*self.windows[mine], mine, weight)


def derive_seed(*numbers: int) -> int:
    """One seed from several numbers; other numbers give an unrelated seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
