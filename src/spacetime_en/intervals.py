"""Confidence intervals of means over windows, by a bootstrap over recordings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 2_000
COVERAGE = 0.95
FEWEST_DRAWN = 5  # groups; fewer say nothing about how much a mean may vary
FEWEST_GROUPS = 10  # recordings to resample; if there are fewer, each is cut into blocks


@dataclass(frozen=True)
class Groups:
    """Windows that are resampled together, because neighbouring ones are not independent.

    Args:
        of_window: index of each window's group, from 0, (W,).
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
        """Group windows by recording; if there are few recordings, they are cut into blocks.

        There are then about as many blocks as windows in a block, so that a block is long compared
        with the correlation time of windows. No block is shorter than a window, or all of its
        windows would share frames with those of neighbouring blocks.

        Args:
            recordings: the recording of each window, (W,).
            first_steps: the step of its first frame, (W,).
            span: number of steps from the first frame of a window to its last target.
            fewest: number of recordings that is enough; fewer are cut into as many blocks as that,
                if possible.
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
        for own in orders:  # (a block never spans two recordings)
            blocks = max(1, len(own) // size)
            groups[own] = total + np.minimum(np.arange(len(own)) // size, blocks - 1)
            total += blocks
        return cls(groups, total, blocks=True)

    def describe(self) -> str:
        """A description in words, for notes below tables."""
        ending = "" if self.count == 1 else "s"
        what = f"block{ending} of neighbouring windows" if self.blocks else f"recording{ending}"
        return f"{self.count:,} {what}"


def mean_intervals(
    values: NDArray[np.float64], groups: Groups, seed: int = 0
) -> list[tuple[float, float] | None]:
    """Bootstrap confidence intervals of means, resampling groups with replacement.

    Few groups underestimate the variance of the population, and estimate it with some uncertainty;
    the intervals are widened by the same factors as Student's.

    For the difference of two models, give the differences of their errors, window by window: what
    makes a window hard for both cancels.

    Args:
        values: rows with one value per window, (M, W).
        groups: which windows are drawn together.
        seed: seed of the resampling.
    Returns: the ends of each row's interval; None if there are too few groups.
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
    """The quantile of Student's t, to 0.3 %, by its expansion about the normal quantile."""
    z, f = _NORMAL, freedom
    return (
        z
        + (z**3 + z) / (4 * f)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * f**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * f**3)
    )
