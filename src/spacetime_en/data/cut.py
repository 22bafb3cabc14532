"""Find the windows of a run: where frames stand as far apart as a window wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cut:
    """The windows of a run, each F frames that stand at given offsets from the first of them.

    Args:
        positions: of the run's frames on the axis of `offsets`, steps or times, (T,), increasing.
        offsets: of a window's frames from its first, (F,), increasing from 0.
        first: the frame with which each window starts, (S,), increasing.
    """

    positions: NDArray[Any]
    offsets: NDArray[Any]
    first: NDArray[np.int64]

    @classmethod
    def find(cls, positions: NDArray[Any], offsets: NDArray[Any], tolerance: float = 0.0) -> Cut:
        """All windows that fit; a frame may be off by a share `tolerance` of its offset."""
        first = np.arange(len(positions))
        for offset in offsets:
            wanted = positions[first] + offset
            off = abs(positions[_nearest(positions, wanted)] - wanted)
            first = first[off <= tolerance * offset]
        return cls(positions, offsets, first)

    def __len__(self) -> int:
        return len(self.first)

    def frames(self, index: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """The frames of the windows at `index`, (b, F)."""
        return _nearest(self.positions, self.positions[self.first[index]][:, None] + self.offsets)

    @property
    def ends(self) -> NDArray[np.int64]:
        """The last frame of each window, (S,)."""
        return _nearest(self.positions, self.positions[self.first] + self.offsets[-1])

    def between(self, low: float, high: float) -> Cut:
        """The windows from position `low` to position `high`."""
        first, last = self.positions[self.first], self.positions[self.ends]
        return Cut(self.positions, self.offsets, self.first[(first >= low) & (last <= high)])


def _nearest(positions: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """The frame nearest to each position, of the shape of `wanted`."""
    after = np.searchsorted(positions, wanted).clip(max=len(positions) - 1)
    before = (after - 1).clip(min=0)
    earlier = wanted - positions[before] < positions[after] - wanted
    return np.asarray(np.where(earlier, before, after))
