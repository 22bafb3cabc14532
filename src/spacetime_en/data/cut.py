"""Find the windows of a run: frames with the spacing that a window asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cut:
    """The windows of a run: F frames each, at given offsets from an anchor frame.

    Args:
        positions: of the run's frames on the axis of `offsets` (steps or times), (T,), increasing.
        offsets: of a window's frames from its anchor, (F,), increasing; one of them is 0.
        anchors: the frame from which each window's offsets are counted, (S,), increasing.
    """

    positions: NDArray[Any]
    offsets: NDArray[Any]
    anchors: NDArray[np.int64]

    @classmethod
    def find(cls, positions: NDArray[Any], offsets: NDArray[Any], tolerance: float = 0.0) -> Cut:
        """All windows that fit; a frame may be off by a fraction `tolerance` of its offset."""
        anchors = np.arange(len(positions))
        for offset in offsets:
            wanted = positions[anchors] + offset
            off = abs(positions[_nearest(positions, wanted)] - wanted)
            anchors = anchors[off <= tolerance * abs(offset)]
        return cls(positions, offsets, anchors)

    def __len__(self) -> int:
        return len(self.anchors)

    def frames(self, index: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """The frames of the windows at `index`, (b, F)."""
        return _nearest(self.positions, self.positions[self.anchors[index], None] + self.offsets)

    @property
    def first(self) -> NDArray[np.int64]:
        """The first frame of each window, (S,)."""
        return _nearest(self.positions, self.positions[self.anchors] + self.offsets[0])

    @property
    def ends(self) -> NDArray[np.int64]:
        """The last frame of each window, (S,)."""
        return _nearest(self.positions, self.positions[self.anchors] + self.offsets[-1])

    def between(self, low: float, high: float) -> Cut:
        """The windows from position `low` to position `high`."""
        first, last = self.positions[self.first], self.positions[self.ends]
        return Cut(self.positions, self.offsets, self.anchors[(first >= low) & (last <= high)])


def _nearest(positions: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """The frame nearest to each position, in the shape of `wanted`."""
    after = np.searchsorted(positions, wanted).clip(max=len(positions) - 1)
    before = (after - 1).clip(min=0)
    earlier = wanted - positions[before] < positions[after] - wanted
    return np.asarray(np.where(earlier, before, after))
