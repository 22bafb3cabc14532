"""How sure a difference between two models is: paired bootstrap over recordings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 2_000
COVERAGE = 0.95
FEWEST_GROUPS = 10  # recordings that can be drawn from; with fewer, each is cut into blocks


@dataclass(frozen=True)
class Groups:
    """Windows that belong together: neighbours are not independent, and are drawn as one.

    Args:
        of_window: the group of each window, from 0, (W,).
        count: number of groups.
        blocks: whether the groups are blocks of neighbouring windows, because there are too few
            recordings.
    """

    of_window: NDArray[np.int64]
    count: int
    blocks: bool

    @classmethod
    def of(cls, recordings: NDArray[np.int64], first_steps: NDArray[np.int64]) -> Groups:
        """Group windows by recording; a few recordings are cut into blocks.

        There are then about as many blocks as windows in a block, so that a block is long beside
        the time over which windows resemble each other.

        Args:
            recordings: the recording of each window, (W,).
            first_steps: the step of its first frame, (W,).
        """
        _, of_window = np.unique(recordings, return_inverse=True)
        count = int(of_window.max()) + 1
        if count >= FEWEST_GROUPS:
            return cls(of_window, count, blocks=False)
        wanted = max(count, FEWEST_GROUPS, math.isqrt(len(recordings)))
        order = np.lexsort((first_steps, of_window))
        size = max(1, math.ceil(len(order) / wanted))
        block = np.empty_like(of_window)
        block[order] = np.arange(len(order)) // size
        # (A block never reaches over the border of two recordings.)
        _, groups = np.unique(np.stack([of_window, block]), axis=1, return_inverse=True)
        groups = groups.reshape(-1)
        return cls(groups, int(groups.max()) + 1, blocks=True)

    def describe(self) -> str:
        """In words, for notes below tables."""
        what = "blocks of neighbouring windows" if self.blocks else "recordings"
        return f"{self.count:,} {what}"


def mean_interval(
    values: NDArray[np.float64], groups: Groups, seed: int = 0
) -> tuple[float, float] | None:
    """The interval that the mean of some values is in, by drawing groups with replacement.

    For the difference of two models, give the differences of their errors, window by window: what
    makes a window hard for both cancels.

    Args:
        values: one for each window, (W,).
        groups: which windows are drawn together.
        seed: of the drawing.
    Returns: its ends; None if there are too few groups to tell.
    """
    if groups.count < 2:
        return None
    sums = np.bincount(groups.of_window, values, groups.count)
    sizes = np.bincount(groups.of_window, minlength=groups.count)
    generator = np.random.default_rng(seed)
    chances = np.full(groups.count, 1 / groups.count)
    means = []
    for part in np.array_split(np.empty(DRAWS), max(1, DRAWS * groups.count // (1 << 22))):
        drawn = generator.multinomial(groups.count, chances, size=len(part))  # (draws, groups)
        means.append(drawn @ sums / (drawn @ sizes))
    low, high = np.quantile(np.concatenate(means), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)
