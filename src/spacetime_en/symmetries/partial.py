"""Does something predict what is left of a target, once all allowed predictors are taken out?

Let y (a residual), c (what a symmetric law may depend on) and psi (what it may not) belong to each
row. Under the null hypothesis y is independent of psi given c, so that

    E[(y - E[y | c]) . (psi - E[psi | c])] = 0.

Both expectations are regressions, fitted on other recordings than those they are used on; the
product of their errors is small even where each of them is not (the generalised covariance
measure of Shah and Peters 2020; Robinson 1988; double machine learning). Where c alone determines
psi, nothing is left of psi, and nothing is claimed: that everybody walks along x is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spacetime_en.intervals import Groups, mean_intervals
from spacetime_en.symmetries.rows import Array

FOLDS = 10
# Which folds, [k, j] for fold j, the regressions of fold k are fitted on: all others; a law that is
# part of psi, on the next two; what is then taken out of y and psi, on those that this law was not
# fitted on, and whose own laws were not fitted on fold k.
OTHERS = ~np.eye(FOLDS, dtype=bool)
NEXT = np.roll(np.eye(FOLDS, dtype=bool), 1, axis=1) | np.roll(np.eye(FOLDS, dtype=bool), 2, axis=1)
REST = OTHERS & ~NEXT & ~NEXT.T
FLIPS = 4_999
PENALTIES = 10.0 ** np.arange(-7, 3)  # relative to the mean square of the basis, of all rows
LEAST_SPREAD = 0.02  # of the variance of psi that must be left, given c


@dataclass(frozen=True)
class Evidence:
    """The result of a test.

    Args:
        p: the probability of so large a statistic if the symmetry holds; None: nothing is left to
            test with.
        gain: by how much the squared error of the forecasts falls when they may use psi, as a
            share of it, on recordings that were not fitted.
        interval: 95 %, from the least gain on recordings that were not fitted to the largest that
            endless data could give; None: too few groups.
        explained: the share of the residual's square that c explains.
        spread: the fraction of the variance of psi that is left given c.
        z: the studentised covariance of each psi with the residual, (q,).
    """

    p: float | None
    gain: float
    interval: tuple[float, float] | None
    explained: float
    spread: float
    z: Array

    @property
    def size(self) -> tuple[float, float, float]:
        """How much psi changes a forecast, relative to the residual itself, with a 95 % interval.

        The root of (gain x unexplained share): 0.1 for a force that is 10 % off. Negative gains
        count as 0.
        """
        low, high = self.interval or (0.0, 1.0)
        unexplained = max(0.0, 1 - self.explained)
        score, least, most = np.sqrt(np.maximum([self.gain, low, high], 0) * unexplained).tolist()
        return score, least, most


def folds_of(groups: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """A fold from 0 for each row; no group is in two folds."""
    count = int(groups.max()) + 1
    order = np.random.default_rng(seed).permutation(count)
    return (order % FOLDS)[groups]


@dataclass(frozen=True)
class Smoother:
    """Ridge regressions on a basis, fitted for each fold on other folds, (R, p).

    Args:
        basis: standardised, a constant first.
        folds: (R,).
        grams: B^T B of each fold.
        fitted_on: the folds on which that of fold k is fitted, (FOLDS, FOLDS).
        axes: the eigenvectors of B^T B of the rows that a fold's regression is fitted on, by fold.
        sizes: the eigenvalues.
    """

    basis: Array
    folds: NDArray[np.int64]
    grams: Array
    fitted_on: NDArray[np.bool_]
    axes: list[Array]
    sizes: list[Array]

    @classmethod
    def of(
        cls, basis: Array, folds: NDArray[np.int64], fitted_on: NDArray[np.bool_] = OTHERS
    ) -> Smoother:
        """Prepare the regressions on a basis, (R, p)."""
        deviation = basis.std(0)
        kept = deviation > 1e-9 * np.maximum(np.abs(basis).max(0), 1e-300)
        basis = (basis[:, kept] - basis[:, kept].mean(0)) / deviation[kept]
        # Limit the influence of a few outlying rows: columns are clipped at six deviations.
        basis = np.clip(basis, -6, 6)
        basis = np.concatenate([np.ones((len(basis), 1)), basis], axis=1)
        parts = [basis[folds == k] for k in range(FOLDS)]
        grams = np.stack([part.T @ part for part in parts])
        return cls(basis, folds, grams, fitted_on, [], []).on(fitted_on)

    def on(self, fitted_on: NDArray[np.bool_]) -> Smoother:
        """The same regressions, fitted on other folds."""
        found = [np.linalg.eigh(self.grams[on].sum(0)) for on in fitted_on]
        sizes, axes = (list(each) for each in zip(*found, strict=True))
        return replace(self, fitted_on=fitted_on, axes=axes, sizes=sizes)

    def fits(self, values: Array) -> Array:
        """The regression of each column on the basis, held-out fold by fold, (R, q) -> (R, q).

        Each column has the penalty with the lowest held-out error.
        """
        return self.fits_and_freedom(values)[0]

    def fits_and_freedom(self, values: Array) -> tuple[Array, Array]:
        """The same, and the degrees of freedom used by each column, (q,)."""
        best = np.full(values.shape[1], np.inf)
        made, freedom = np.zeros_like(values), np.zeros(values.shape[1])
        folds = [self.folds == k for k in range(FOLDS)]
        sides = np.stack([self.basis[own].T @ values[own] for own in folds])
        counts = np.bincount(self.folds, minlength=FOLDS)
        projected, tested = [], []
        for own, on, axes in zip(folds, self.fitted_on, self.axes, strict=True):
            projected.append(axes.T @ sides[on].sum(0))
            tested.append(self.basis[own] @ axes)
        for penalty in PENALTIES:
            fitted = np.empty_like(values)
            for k, sizes in enumerate(self.sizes):
                rows = max(1, counts[self.fitted_on[k]].sum())  # (few groups may leave none)
                shrunk = 1 / (np.maximum(sizes, 0) + penalty * rows)
                fitted[folds[k]] = tested[k] @ (shrunk[:, None] * projected[k])
            error = np.square(values - fitted).sum(0)
            better = error < best
            made[:, better], best[better] = fitted[:, better], error[better]
            freedom[better] = (np.maximum(sizes, 0) * shrunk).sum()  # (of the last fold)
        return made, freedom


def weigh(
    smoother: Smoother,
    residual: Array,
    psi: Array,
    groups: Groups,
    group: NDArray[np.int64],
    least_spread: float = LEAST_SPREAD,
    seed: int = 0,
) -> Evidence:
    """Test whether psi predicts the residual beyond c.

    Args:
        smoother: regressions on functions of c.
        residual: y, (R, n).
        psi: (R, q, n), each a vector field that the symmetry forbids.
        groups: the independent units.
        group: of each row, (R,).
        least_spread: psi of which less is left, given c, are ignored.
        seed: of the random signs.
    """
    R, q, n = psi.shape
    fitted, freedom = smoother.fits_and_freedom(residual)
    left = residual - fitted
    flat = psi.reshape(R, q * n)
    fitted, psi_freedom = smoother.fits_and_freedom(flat)
    over = (flat - fitted).reshape(R, q, n)
    before = np.square(psi - psi.mean(0)).sum((0, 2))
    after = np.square(over).sum((0, 2))
    share = after / np.maximum(before, 1e-300)
    usable = (share > least_spread) & (after > 1e-12 * np.square(psi).sum((0, 2)))
    unexplained, whole = float(np.square(left).sum()), float(np.square(residual).sum())
    explained = 1 - unexplained / max(whole, 1e-300)
    spread = float(share.max(initial=0.0))
    if not usable.any() or unexplained == 0:
        return Evidence(None, 0.0, None, explained, spread, np.zeros(q))
    over = over[:, usable] / np.sqrt(after[usable] / R)[:, None]
    products = np.einsum("rn,rqn->rq", left, over)
    sums = np.zeros((groups.count, products.shape[1]))
    np.add.at(sums, group, products)
    z = sums.sum(0) / np.maximum(np.sqrt(np.square(sums).sum(0)), 1e-300)
    # The errors of both regressions have a common product that no flip of signs shows: its
    # variance, relative to that of the sum itself, is the ratio of degrees of freedom to rows.
    common = min(freedom.max(), psi_freedom.max()) / R
    p = _by_flipping(sums, 1 + common, seed)
    gains, cost = _gains(left, over, smoother.folds)
    rows = Groups(group, groups.count, groups.blocks)
    (interval,) = mean_intervals(gains[None], rows)
    mean = unexplained / R
    all_z = np.zeros(q)
    all_z[usable] = z
    return Evidence(
        p,
        float(gains.mean()) / mean,
        # (What the noise of the fit costs is no bound on what there is to gain.)
        None if interval is None else (interval[0] / mean, (interval[1] + cost) / mean),
        explained,
        spread,
        all_z,
    )


def _by_flipping(sums: Array, inflation: float, seed: int) -> float:
    """The p-value of the largest studentised sum, by random signs of the groups, (G, q).

    Under the null hypothesis each group's sum has mean 0. Their sizes, which vary widely, stay.

    Args:
        inflation: of the variance of the whole sum, relative to that of its parts.
    """
    generator = np.random.default_rng(seed)
    size = np.maximum(np.sqrt(np.square(sums).sum(0)), 1e-300)
    found = np.abs(sums.sum(0) / size).max() / np.sqrt(inflation)
    larger = 0
    for part in np.array_split(np.empty(FLIPS), max(1, FLIPS * len(sums) // (1 << 23))):
        signs = generator.choice([-1.0, 1.0], size=(len(part), len(sums)))
        # (Rounding must not make the identity flip look smaller than itself.)
        larger += int((np.abs(signs @ sums / size).max(1) >= found * (1 - 1e-12)).sum())
    return (1 + larger) / (1 + FLIPS)


def _gains(left: Array, over: Array, folds: NDArray[np.int64]) -> tuple[Array, float]:
    """By how much squared errors fall if psi is regressed on, too, row by row, held out, (R,).

    With weights b of other recordings the square falls by 2 y . (psi b) - |psi b|^2. In the mean
    that is E|psi beta|^2 less what the noise of b costs, |psi b|^2 - y . (psi b), the second.
    """
    q = over.shape[1]
    grams, sides = [], []
    for k in range(FOLDS):
        own = over[folds == k]
        grams.append(np.einsum("rqn,rpn->qp", own, own))
        sides.append(np.einsum("rqn,rn->q", own, left[folds == k]))
    fitted = np.empty_like(left)
    for k in range(FOLDS):
        gram, side = sum(grams) - grams[k], sum(sides) - sides[k]
        # Shrink weights that are noise: ten rows' worth of zeros for each.
        beta = np.linalg.solve(gram + 0.01 * np.trace(gram) / q * np.eye(q), side)
        fitted[folds == k] = np.einsum("rqn,q->rn", over[folds == k], beta)
    gains = (np.square(left) - np.square(left - fitted)).sum(1)
    cost = float((fitted * (fitted - left)).sum(1).mean())
    return np.asarray(gains), max(0.0, cost)
