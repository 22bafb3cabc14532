"""Find what data conserve.

A quantity q = sum_k c_k phi_k of terms of the dictionary is conserved if it does not change along
true paths although its parts, one per node or pair of nodes, do: what one loses, others gain.
With W the covariance matrix of the terms within a path, and S the sum of those of their parts,

    W c = lambda S c

gives the combinations in the order of lambda = c'Wc / c'Sc. It is 1 for parts that vary
independently of each other, and 0 for a conserved quantity. (The variance between paths would be
another yardstick, but systems that are at rest as a whole all have the same momentum.) Vectors and
bivectors whose parts do not vary at all, such as the angular momenta of planets about a heavy sun,
are conserved, too: therefore a thousandth of their size, squared, is added to S.

Forces that are clipped, or frames that are wrong, spoil single paths by any amount. Paths are
therefore weighted so as to minimise the median of lambda over paths, not its mean.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.conservation.paths import Paths
from spacetime_en.conservation.quantities import Combination
from spacetime_en.conservation.terms import KINETIC, Parts, TermKind, kinds_of, term_parts

LARGEST_VARIATION = 0.05  # maximum median sqrt(lambda) of held-out paths for a conserved quantity
SHORT = 1.5  # a formula is shortened while its variation grows at most by this factor,
NEGLIGIBLE = 0.01  # or by no more than this
LEAST_PATHS = 20
_AT_ONCE = 1 << 23  # numbers in the parts of terms held in memory at a time
_STARTS, _ROUNDS = 5, 30  # of weighting paths
_CONSTANT = 1e-3  # relative to the size of parts: what varies by much less is constant
_CANCELLED = 1e-13  # relative to a path's variation: rounding errors of identical terms
_SINGULAR = 1e-10  # of S: terms that are proportional
_IDENTITY = 1e-9  # of a term's variation, squared: what other terms leave of it in any state
_STATES = 200  # paths of arbitrary states, which reveal identities


@dataclass(frozen=True)
class Conserved:
    """A conserved quantity, with the evidence from held-out paths.

    Args:
        quantity: the combination of terms.
        variation: sqrt(lambda), the variation along a path relative to what it would be if all
            parts varied independently of each other; the median over held-out paths.
        p90: the 90th percentile.
    """

    quantity: Combination
    variation: float
    p90: float

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.quantity.name,
            "kind": self.quantity.kind,
            "formula": self.quantity.formula,
            "coefficients": dict(self.quantity.coefficients),
            "variation": self.variation,
            "variation_p90": self.p90,
        }


@dataclass(frozen=True)
class Findings:
    """The result of :func:`find_conserved`.

    Args:
        conserved: the quantities.
        rejected: by kind, the variation of the best combination that failed, if any remains.
        terms: by kind, the number of terms in the dictionary.
        paths, held_out: the number of paths, or of their connected components.
    """

    conserved: list[Conserved]
    rejected: dict[str, float]
    terms: dict[str, int]
    paths: int
    held_out: int


def find_conserved(train: Paths, held_out: Paths) -> Findings:
    """Find the quantities that all paths conserve, in each connected component separately.

    Args:
        train: paths from which combinations are found.
        held_out: other paths, on which they must also be conserved.
    """
    train, held_out = train.connected(), held_out.connected()
    for paths in (train, held_out):
        if len(paths) < LEAST_PATHS:
            which = "to learn from" if paths is train else "to check on"
            raise InputError(
                f"paths: {len(paths)} {which}, of two connected nodes or more, all observed in all "
                f"frames; at least {LEAST_PATHS} are needed."
            )
    _check_moving(train)
    conserved: list[Conserved] = []
    rejected: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for kind in kinds_of(train):
        search = _Search.of(train, held_out, kind)
        sizes[kind] = len(search.names)
        while (c := search.best()) is not None:
            checked = search.checked(c)
            if not checked.variation <= LARGEST_VARIATION:
                rejected[kind] = checked.variation
                break
            short = search.checked(search.shortened(c))
            # (Shortened on the paths it was found on; the others are the test.)
            best = short if short.variation <= LARGEST_VARIATION else checked
            conserved.append(best)
            search.found.append(c)
    return Findings(conserved, rejected, sizes, len(train), len(held_out))


def _check_moving(paths: Paths) -> None:
    """Reject paths with constant velocities: along these, everything is conserved."""
    change = (paths.v - paths.v.mean(1, keepdim=True)).square().sum((1, 2, 3))
    size = (paths.v.square() * paths.present[:, None, :, None]).sum((1, 2, 3))
    if bool((change <= 1e-10 * size).double().mean() > 0.5):
        raise InputError(
            "paths: velocities do not change along most of them; where nothing acts on nodes, "
            "each conserves all that it has."
        )


class _Sums(NamedTuple):
    """Weighted sums over paths: W and S, (K, K), and S f of each f that was found, (F, K)."""

    W: Tensor
    S: Tensor
    found: Tensor


class _Solution(NamedTuple):
    """Eigenvalues, (m,), increasing, and combinations, (m, K), of length 1."""

    lambdas: Tensor
    combinations: Tensor


@dataclass
class _Search:
    """The matrices of one kind of terms, K of them, in units in which each varies by about 1.

    Args:
        names: of the terms.
        units: of the terms, (K,).
        W, S: of the paths used to find combinations, (P, K, K).
        W_held, S_held: of the held-out ones.
        found: the combinations found so far, (K,) each, in these units.
    """

    kind: TermKind
    names: list[str]
    units: Tensor
    W: Tensor
    S: Tensor
    W_held: Tensor
    S_held: Tensor
    found: list[Tensor]

    @classmethod
    def of(cls, train: Paths, held_out: Paths, kind: TermKind) -> _Search:
        names, W, S = _matrices(train, kind)
        _, W_held, S_held = _matrices(held_out, kind)
        own = S.diagonal(dim1=1, dim2=2)  # (P, K)
        kept = own.any(0)  # (an attribute may be 0 throughout)
        kept &= _independent(*_matrices(_arbitrary(train), kind)[1:])
        names = [name for name, keep in zip(names, kept.tolist(), strict=True) if keep]
        units = own.new_tensor([float(column[column > 0].median()) for column in own.T[kept]])
        units = units.rsqrt()
        scale = units[:, None] * units

        def normalised(W: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
            """Each path relative to the size of its own variation, so that none dominates."""
            W, S = (t[:, kept][:, :, kept] * scale for t in (W, S))
            size = S.diagonal(dim1=1, dim2=2).sum(1)
            moving = size > 1e-20
            W, S = (t[moving] / size[moving, None, None] for t in (W, S))
            return W, S

        return cls(kind, names, units, *normalised(W, S), *normalised(W_held, S_held), [])

    def best(self) -> Tensor | None:
        """The combination (K,) with the smallest median lambda; None if there is none.

        It is independent of those found before, as measured by S. The median has several minima:
        the search starts from the best combinations of two terms, and from that of all.
        """
        K = len(self.names)
        every, equal = torch.ones(K, dtype=torch.bool), torch.ones(len(self.W)).double()
        starts = []
        for chosen in [*itertools.combinations(range(K), 2), range(K)]:
            terms = torch.zeros(K, dtype=torch.bool)
            terms[list(chosen)] = True
            solved = _solve(terms, self._sums(terms, equal))
            if solved is not None:
                starts.append(self._refined(terms, solved.combinations[0], rounds=3))
        starts = sorted(starts, key=self._median)[:_STARTS]
        return min((self._refined(every, c) for c in starts), key=self._median, default=None)

    def _refined(self, terms: Tensor, c: Tensor, rounds: int = _ROUNDS) -> Tensor:
        """The combination of some terms (K,) with the smallest median lambda, near `c`."""
        before = torch.inf
        for _ in range(rounds):
            solved = _solve(terms, self._sums(terms, self._weights(c)))
            if solved is None or abs(self._median(c) - before) <= 1e-3 * before:
                break
            before, c = self._median(c), solved.combinations[0]
        return c

    def _weights(self, c: Tensor) -> Tensor:
        """Weights of paths, lower for bad ones, that minimise the median lambda, not the mean."""
        ratio = _lambdas(self.W, self.S, c)
        size = _bounded(_quadratic(self.S, c)) * (ratio + ratio.median() + 1e-16)
        weights = size.median() / size.clamp(min=1e-12 * float(size.max()))
        return weights / weights.mean()

    def _median(self, c: Tensor) -> float:
        """The median variation, sqrt(lambda), over the paths used to find combinations."""
        return float(_lambdas(self.W, self.S, c).median().sqrt())

    def _sums(self, terms: Tensor, weights: Tensor) -> _Sums:
        """The weighted sums over paths, for these terms only: all others stay 0."""
        kept = terms.nonzero().flatten()
        K = len(self.names)
        W, S = torch.zeros(2, K, K, dtype=torch.float64)
        for whole, paths in ((W, self.W), (S, self.S)):
            own = paths if terms.all() else paths[:, kept[:, None], kept]
            whole[kept[:, None], kept] = torch.einsum("p,pkl->kl", weights, own)
        found = torch.zeros(len(self.found), K, dtype=torch.float64)
        for row, f in zip(found, self.found, strict=True):
            row[kept] = weights @ (self.S[:, kept] @ f)
        return _Sums(W, S, found)

    def shortened(self, c: Tensor) -> Tensor:
        """The same quantity with as few terms as possible, dropped one by one."""
        limit = max(SHORT * self._median(c), NEGLIGIBLE)
        terms = torch.ones(len(self.names), dtype=torch.bool)
        while True:
            sums = self._sums(terms, self._weights(c))
            solved = _solve(terms, sums)
            if solved is None or len(solved.lambdas) < 2:
                return c
            terms[_least_missed(solved, sums.S, terms)] = False
            solved = _solve(terms, sums)
            if solved is None:
                return c
            start = solved.combinations[0]
            shorter = self._refined(terms, start)
            if self._median(shorter) > limit:
                return c
            c = shorter

    def checked(self, c: Tensor) -> Conserved:
        """The combination as a quantity, with its variation on held-out paths."""
        variations = _lambdas(self.W_held, self.S_held, c).sqrt()
        median, p90 = (float(variations.quantile(q)) for q in (0.5, 0.9))
        # In the units of the data, relative to the leading term: the kinetic energy, if present,
        # or else the term that varies most.
        weight = c.abs() * torch.tensor(
            [1e6 if KINETIC in name else 1.0 for name in self.names], dtype=torch.float64
        )
        raw = c * self.units
        raw = raw / raw[weight.argmax()]
        used = (c != 0).tolist()
        coefficients = {
            name: float(value)
            for name, value, use in zip(self.names, raw, used, strict=True)
            if use
        }
        return Conserved(Combination(self.kind, coefficients), median, p90)


def _arbitrary(paths: Paths) -> Paths:
    """Some of the paths, with arbitrary states that follow no law."""
    some = paths[:: max(1, len(paths) // _STATES)]
    generator = torch.Generator().manual_seed(0)
    x, v = (
        t.std() * torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in (some.x, some.v)
    )
    return dataclasses.replace(some, x=x, v=v)


def _independent(W: Tensor, S: Tensor) -> Tensor:
    """Which terms are no combination of those before them in arbitrary states, (K,).

    Two bodies of the same mass, for instance, are always opposite each other: sums of odd powers of
    their y and u are identically 0, which is no law.

    Args:
        W, S: of paths of arbitrary states, (P, K, K).
    """
    size = S.sum(0).diagonal().clamp(min=1e-300).rsqrt()
    left = size[:, None] * W.sum(0) * size  # what the kept terms do not explain
    kept = torch.zeros(len(left), dtype=torch.bool)
    for k, variance in enumerate(left.diagonal()):
        if variance > _IDENTITY:  # a step of the Cholesky decomposition
            kept[k] = True
            left -= left[:, k : k + 1] * left[k] / variance.clone()
    return kept


def _solve(terms: Tensor, sums: _Sums) -> _Solution | None:
    """The generalised eigenproblem W c = lambda S c of some terms, apart from what was found."""
    K = len(terms)
    basis = torch.eye(K, dtype=torch.float64)[:, terms]
    if len(sums.found):  # c' S f = 0 for all f that were found
        _, values, v = torch.linalg.svd(sums.found @ basis, full_matrices=True)
        rank = int((values > 1e-12 * values.max().clamp(min=1e-300)).sum())
        basis = basis @ v[rank:].T
    if basis.shape[1] == 0:
        return None
    W, S = (basis.T @ t @ basis for t in sums[:2])
    size = S.diagonal().clamp(min=1e-300).rsqrt()
    W, S = (size[:, None] * t * size for t in (W, S))
    values, vectors = torch.linalg.eigh(S)
    regular = values > _SINGULAR * values[-1]
    if not regular.any():  # nothing varies
        return None
    white = vectors[:, regular] / values[regular].sqrt()
    lambdas, combinations = torch.linalg.eigh(white.T @ W @ white)
    c = (basis @ (size[:, None] * (white @ combinations))).T
    return _Solution(lambdas, c / c.norm(dim=1, keepdim=True))


def _least_missed(solved: _Solution, S: Tensor, terms: Tensor) -> int:
    """The term whose removal raises the smallest eigenvalue least.

    Without the k-th term, with c_j' S c_j = 1, the eigenvalues are the roots of

        sum_j c_jk^2 / (lambda_j - lambda),

    the smallest of which lies between the first two lambdas; there the sum increases.
    """
    lambdas, c = solved
    size = torch.einsum("jk,kl,jl->j", c, S, c)
    squares = (c.square() / size[:, None])[:, terms]  # (m, K)
    low, high = (lambdas[j].repeat(squares.shape[1]) for j in (0, 1))
    for _ in range(60):
        middle = (low + high) / 2
        above = (squares / (lambdas[:, None] - middle)).nan_to_num(0.0).sum(0) > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return int(terms.nonzero().flatten()[high.argmin()])


def _lambdas(W: Tensor, S: Tensor, c: Tensor) -> Tensor:
    """c' W c / c' S c of each path, (P,); 1 on paths along which the parts cancel."""
    size = _quadratic(S, c)
    ratio = _quadratic(W, c).clamp(min=0) / _bounded(size)
    return torch.where(size > _CANCELLED, ratio, 1.0)


def _bounded(size: Tensor) -> Tensor:
    """Variances of parts, (P,), with a lower bound: the smallest are rounding errors."""
    return size.clamp(min=max(1e-7 * float(size.median()), 1e-300))


def _quadratic(matrices: Tensor, c: Tensor) -> Tensor:
    """c' M c of each matrix, (P, K, K) and (K,) -> (P,)."""
    used = c.nonzero().flatten()
    if len(used) < len(c):  # (of seventy terms often two: the rest need not be read)
        matrices, c = matrices[:, used[:, None], used], c[used]
    return matrices @ c @ c


def _matrices(paths: Paths, kind: TermKind) -> tuple[list[str], Tensor, Tensor]:
    """The names of the terms, and W and S of each path, (P, K, K)."""
    _, T, N, n = paths.x.shape
    # (Parts of pairs are scalars; a dictionary has up to some thirty terms.)
    each = 32 * T * (N * N if kind == "scalar" else N * n * n)
    at_once = max(1, _AT_ONCE // each)
    names: list[str] = []
    W, S = [], []
    for first in range(0, len(paths), at_once):
        groups = [g for g in term_parts(paths[first : first + at_once], kind) if g]
        names = [name for group in groups for name in group]
        totals = torch.cat([_deviations(_stacked(group).sum(2)) for group in groups], dim=2)
        W.append(torch.einsum("ptkc,ptlc->pkl", totals, totals) / T)
        blocks = [_deviations(_stacked(group)) for group in groups]
        own = [torch.einsum("ptmkc,ptmlc->pkl", d, d) / T for d in blocks]
        if kind != "scalar":  # (scalar sizes mean nothing: a potential has a free constant)
            sizes = [_stacked(group) for group in groups]
            own = [
                s + _CONSTANT**2 * torch.einsum("ptmkc,ptmlc->pkl", q, q) / T
                for s, q in zip(own, sizes, strict=True)
            ]
        S.append(_block_diagonal(own))
    return names, torch.cat(W), torch.cat(S)


def _stacked(group: Parts) -> Tensor:
    """Stacked parts, (P, T, parts, k, c)."""
    return torch.stack(list(group.values()), dim=3)


def _deviations(values: Tensor) -> Tensor:
    """Deviations from the mean over time, (P, T, ...)."""
    return values - values.mean(1, keepdim=True)


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    """A block-diagonal matrix from matrices (P, k, k) for each block."""
    P, K = len(blocks[0]), sum(b.shape[1] for b in blocks)
    whole = blocks[0].new_zeros(P, K, K)
    start = 0
    for block in blocks:
        end = start + block.shape[1]
        whole[:, start:end, start:end] = block
        start = end
    return whole
