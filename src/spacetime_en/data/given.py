"""Windows cut by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import shortened
from spacetime_en.collation import Pair, collate
from spacetime_en.data.compatibility import Trained
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Digest, Windows, rows_of
from spacetime_en.graph import Forecast, SpacetimeGraph

_KEPT = 1 << 28  # bytes; smaller sets of windows are read only once


class PairsByNumber(Protocol):
    """What windows can be built from: a length, and pairs with a batch of one, by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Pair: ...


class GivenWindows(Windows):
    """The user's own windows, with the interface of :class:`Windows`.

    They are taken as they are: no noise is added, and their origin and features are kept. Each
    counts as a separate run.

    Args:
        given: anything with a length and, by index, pairs (graph, target) with a batch of one.
        name: used at the start of error messages.
    """

    def __init__(self, given: PairsByNumber, name: str = "windows") -> None:
        if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")) or len(given) == 0:
            raise InputError(
                f"{name}: expected Windows, or something with a length and pairs (SpacetimeGraph, "
                f"Forecast) by number, found {shortened(given)}."
            )
        self._given, self._count = given, len(given)
        self._name = name
        self._items: list[Pair] | None = None
        graph, target = self._item(0)
        size = sum(t.nbytes for part in (graph, target) for t in part.fields().values())
        self.fits = size * self._count <= _KEPT
        if self.fits:
            self._items = [self._item(i) for i in range(self._count)]
            self.node_counts = np.array([pair[0].x.shape[2] for pair in self._items])
        else:
            self.node_counts = np.broadcast_to(graph.x.shape[2], self._count)
        _, L, _, n = graph.x.shape
        T = graph.horizon.shape[1]
        self.length, self.target_steps = L, tuple(range(1, T + 1))
        self.origin, self.dtype = np.zeros(n), graph.x.dtype
        self.noise, self.noise_seed, self.targets = 0.0, 0, "observed"
        self.radius = self.k = None
        self.runs, self.numbers = np.arange(self._count), None
        # The first window, as an example of the kind of data.
        ahead = graph.times[:, -1:] + graph.horizon
        self.trajectories = Trajectories(
            torch.cat([graph.x, target.x], dim=1).double().numpy(),
            torch.cat([graph.v, target.v], dim=1).double().numpy(),
            np.arange(L + T),
            torch.cat([graph.times, ahead], dim=1)[0].double().numpy(),
            box=None if graph.box is None else graph.box[0].double().numpy(),
        )

    def _item(self, index: int) -> Pair:
        if self._items is not None:
            return self._items[index]
        pair = self._given[index]
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], SpacetimeGraph)
            and isinstance(pair[1], Forecast)
            and len(pair[0]) == 1
        ):
            raise InputError(
                f"{self._name}: expected a pair (SpacetimeGraph, Forecast) with a batch of one as "
                f"window {index}, found {shortened(pair)}."
            )
        return pair

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: SupportsIndex | slice | Sequence[int] | Tensor) -> Pair:
        return collate([self._item(int(row)) for row in rows_of(index, self._count)])

    @property
    def ragged(self) -> bool:
        return True

    @property
    def fits_in_memory(self) -> bool:
        return self.fits

    def sample(self, most: int) -> Pair:
        return self[np.linspace(0, self._count - 1, min(self._count, most)).astype(int).tolist()]

    def locate(
        self, index: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        index = np.arange(self._count) if index is None else index
        frames = np.arange(self.length + len(self.target_steps))
        return index, np.broadcast_to(frames, (len(index), len(frames)))

    def runs_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        return index

    def last_in_each_run(self) -> NDArray[np.int64]:
        return np.arange(self._count)

    def add_to(self, digest: Digest) -> None:
        for index in range(self._count):
            for part in self._item(index):
                for name, tensor in part.fields().items():
                    digest.update(repr((name, tensor.shape)).encode())
                    digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)

    def with_origin(self, origin: NDArray[np.float64]) -> GivenWindows:
        return self

    def for_model(self, model: Trained) -> GivenWindows:
        return self
