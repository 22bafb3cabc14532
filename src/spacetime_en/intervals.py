"""How sure a mean over windows is, or a difference of two models: bootstrap over recordings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 2_000
COVERAGE = 0.95
FEWEST_DRAWN = 5  # groups; fewer tell nothing about how much a mean may vary
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
    def of(
        cls,
        recordings: NDArray[np.int64],
        first_steps: NDArray[np.int64],
        span: int = 1,
        fewest: int = FEWEST_GROUPS,
    ) -> Groups:
        """Group windows by recording; a few recordings are cut into blocks.

        There are then about as many blocks as windows in a block, so that a block is long beside
        the time over which windows resemble each other; and no block is shorter than a window, or
        its neighbours would have frames in common with all of it.

        Args:
            recordings: the recording of each window, (W,).
            first_steps: the step of its first frame, (W,).
            span: number of steps from the first frame of a window to its last target.
            fewest: recordings that are enough; fewer are cut, into so many blocks if they can be.
        """
        _, of_window = np.unique(recordings, return_inverse=True)
        count = int(of_window.max()) + 1
        if count >= fewest:
            return cls(of_window, count, blocks=False)
        wanted = max(count, fewest, math.isqrt(len(recordings)))
        size = max(1, math.ceil(len(recordings) / wanted))
        orders = []
        for recording in range(count):
            (own,) = np.nonzero(of_window == recording)
            own = own[np.argsort(first_steps[own], kind="stable")]
            steps = first_steps[own]
            within = np.searchsorted(steps, steps + span) - np.arange(len(steps))
            size = max(size, int(within.max()))
            orders.append(own)
        groups, total = np.empty_like(of_window), 0
        for own in orders:  # (a block never reaches over the border of two recordings)
            blocks = max(1, len(own) // size)
            groups[own] = total + np.minimum(np.arange(len(own)) // size, blocks - 1)
            total += blocks
        return cls(groups, total, blocks=True)

    def describe(self) -> str:
        """In words, for notes below tables."""
        ending = "" if self.count == 1 else "s"
        what = f"block{ending} of neighbouring windows" if self.blocks else f"recording{ending}"
        return f"{self.count:,} {what}"


def mean_intervals(
    values: NDArray[np.float64], groups: Groups, seed: int = 0
) -> list[tuple[float, float] | None]:
    """The intervals that the means of some values are in, by drawing groups with replacement.

    Few groups vary less among themselves than what they were drawn from, and do not tell well by
    how much; the ends are as much further from the mean as this does to Student's interval.

    For the difference of two models, give the differences of their errors, window by window: what
    makes a window hard for both cancels.

    Args:
        values: rows with one for each window, (M, W).
        groups: which windows are drawn together.
        seed: of the drawing.
    Returns: the ends of each row's; None if there are too few groups to tell.
    """
    if groups.count < FEWEST_DRAWN:
        return [None] * len(values)
    sums = np.stack([np.bincount(groups.of_window, row, groups.count) for row in values], axis=1)
    sizes = np.bincount(groups.of_window, minlength=groups.count)
    generator = np.random.default_rng(seed)
    chances = np.full(groups.count, 1 / groups.count)
    means = []
    for part in np.array_split(np.empty(DRAWS), max(1, DRAWS * groups.count // (1 << 22))):
        drawn = generator.multinomial(groups.count, chances, size=len(part))  # (draws, groups)
        means.append(drawn @ sums / (drawn @ sizes)[:, None])
    ends = np.quantile(np.concatenate(means), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
    count, mean = groups.count, values.mean(axis=1)
    wider = math.sqrt(count / (count - 1)) * _student(count - 1) / _NORMAL
    low, high = mean + wider * (ends - mean)
    return list(zip(low.tolist(), high.tolist(), strict=True))


_NORMAL = NormalDist().inv_cdf((1 + COVERAGE) / 2)


def _student(freedom: int) -> float:
    """The end of Student's interval, to 0.3 %: its expansion about that of the normal one."""
    z, f = _NORMAL, freedom
    return (
        z
        + (z**3 + z) / (4 * f)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * f**3)
    )
