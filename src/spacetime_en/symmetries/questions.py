"""One question for each group: what its law may depend on, c, and what it may not, psi.

Each concerns one group only, and takes no other for granted: the question of translations, say, has
directions of the laboratory in c, so that a wind does not count as an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spacetime_en.symmetries.frames import own_frames, turned
from spacetime_en.symmetries.partial import (
    LEAST_SPREAD,
    NEXT,
    OTHERS,
    REST,
    Evidence,
    Smoother,
    folds_of,
    weigh,
)
from spacetime_en.symmetries.rows import VELOCITY, Array, Rows

WAVES = 100  # random Fourier features
LONGEST = 0.99  # quantile: longer residuals are shortened to this length


@dataclass(frozen=True)
class Asked:
    """Rows for a question, in the frame in which it is asked.

    Args:
        rows: whose groups count.
        residual, vectors: in that frame, (R, n) and (R, K, n).
        given: which vectors the law may depend on, (K,).
        identity: whether it may depend on which node it is.
    """

    rows: Rows
    residual: Array
    vectors: Array
    given: NDArray[np.bool_]
    identity: bool

    @classmethod
    def of(cls, rows: Rows, identity: bool, frames: Array | None = None) -> Asked:
        """In the laboratory's frame, or in `frames`, (R, n, n); the law may know all vectors."""
        residual, vectors = rows.residual, rows.vectors
        if frames is not None:
            residual, vectors = turned(frames, residual), turned(frames, vectors)
        return cls(rows, residual, vectors, np.ones(vectors.shape[1], dtype=bool), identity)

    def smoother(self, fitted_on: NDArray[np.bool_] = OTHERS) -> Smoother:
        """Regressions on functions of c, for each fold fitted on others."""
        rows = self.rows
        basis = functions_of(self.vectors[:, self.given], rows.scalars, _who(rows, self.identity))
        return Smoother.of(basis, folds_of(rows.group), fitted_on)

    def law(self, smoother: Smoother) -> Array:
        """The prediction of a symmetric law for each row, for fields psi, (R, n).

        For each fold it is fitted on the next two, and what `smoother` takes out of y and psi on
        others (`REST`). If psi contained the fit that is taken out of y, that fit's noise would
        appear on both sides of the covariance, and pass for a broken symmetry wherever c determines
        psi only roughly.
        """
        return smoother.on(NEXT).fits(self.residual)


def functions_of(vectors: Array, scalars: Array, who: Array) -> Array:
    """A basis of functions of c, (R, p).

    Components; components times the logarithms of all lengths, which represent forces at any
    distance; random waves; attributes and, for nodes that differ, indicators, times components.

    Args:
        vectors: (R, K, n).
        scalars: (R, S).
        who: indicators of nodes or kinds of nodes, (R, J).
    """
    R, K, n = vectors.shape
    if K == 0:
        return np.concatenate([scalars, who], axis=1)
    flat = vectors.reshape(R, K * n)
    size = np.linalg.norm(vectors, axis=2)
    typical = np.median(size, axis=0)
    typical = np.where(typical > 0, typical, np.maximum(size.mean(0), 1e-300))
    lengths = np.log1p(size / typical)
    generator = np.random.default_rng(0)
    standard = flat / np.maximum(flat.std(0), 1e-300)
    waves = generator.standard_normal((K * n, WAVES)) / np.sqrt(K * n)
    phase = generator.uniform(0, 2 * np.pi, WAVES)
    parts = [
        flat,
        lengths,
        _products(flat, lengths),
        np.cos(np.clip(standard, -4, 4) @ waves + phase),
        scalars,
        _products(flat, scalars),
        who,
        _products(flat[:, : 4 * n], who),
    ]
    return np.concatenate(parts, axis=1)


def _products(a: Array, b: Array) -> Array:
    """All products of a column of a with one of b, (R, p) and (R, q) -> (R, p q)."""
    return np.asarray(np.einsum("rp,rq->rpq", a, b).reshape(len(a), -1))


def _who(rows: Rows, identity: bool) -> Array:
    """Indicators of the nodes if they matter, else of nodes identified by their attributes."""
    nodes = int(rows.node.max()) + 1
    if nodes < 2:
        return np.zeros((len(rows), 0))
    if identity:
        return np.eye(nodes)[rows.node]
    if rows.scalars.shape[1] == 0:
        return np.zeros((len(rows), 0))
    first = np.array([np.argmax(rows.node == i) for i in range(nodes)])
    constant = (rows.scalars == rows.scalars[first][rows.node]).all()
    if not constant:
        return np.zeros((len(rows), 0))
    _, kind = np.unique(rows.scalars[first], axis=0, return_inverse=True)
    return np.eye(int(kind.max()) + 1)[kind.reshape(-1)[rows.node]]


def bounded(residual: Array) -> Array:
    """Residuals, the longest shortened: a few close encounters would dominate all others.

    An equivariant function of the residual alone: what is independent stays so.
    """
    length = np.linalg.norm(residual, axis=1)
    most = np.quantile(length, LONGEST)
    return np.asarray(residual * np.minimum(1, most / np.maximum(length, 1e-300))[:, None])


def answer(
    asked: Asked, smoother: Smoother, psi: Sequence[Array], least_spread: float = LEAST_SPREAD
) -> Evidence:
    """Test the fields psi, (R, n) or (R, q, n) each."""
    whole = np.concatenate([f[:, None] if f.ndim == 2 else f for f in psi], axis=1)
    rows = asked.rows
    return weigh(smoother, asked.residual, whole, rows.groups, rows.group, least_spread)


def weighted_fields(weights: Array, vectors: Sequence[Array]) -> Array:
    """Each weight (R, w) times each vector (R, n): (R, w V, n)."""
    stacked = np.stack(vectors, axis=1)  # (R, V, n)
    product = np.einsum("rw,rvn->rwvn", weights, stacked)
    return np.asarray(product.reshape(len(weights), -1, stacked.shape[2]))


def matrix_fields(vector: Array) -> Array:
    """All E_kl u with one entry 1 in row k and column l, as fields, (R, n) -> (R, n n, n)."""
    return weighted_fields(vector, constant_fields(vector))


def constant_fields(like: Array) -> list[Array]:
    """The unit vectors of the laboratory as fields, of the shape (R, n) of `like` each."""
    return [np.broadcast_to(e, like.shape) for e in np.eye(like.shape[1])]


# --- the questions --------------------------------------------------------------------------------


def permutation(rows: Rows) -> Evidence | None:
    """Does it matter which node it is? psi: an indicator of each, times what moves it."""
    nodes = int(rows.node.max()) + 1
    if nodes < 2:
        return None
    asked = Asked.of(rows, identity=False)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    indicator = np.eye(nodes)[rows.node] - 1 / nodes
    fields = [*constant_fields(expected), rows.vectors[:, VELOCITY], expected]
    return answer(asked, smoother, [weighted_fields(indicator, fields)])


def translation(rows: Rows, identity: bool) -> Evidence:
    """Does absolute position matter? psi: functions of the position, along each direction.

    Linear, quadratic, and beyond the outermost deciles, where walls are.
    """
    asked = Asked.of(rows, identity)
    place = rows.position - rows.position.mean(0)
    place = place / np.maximum(place.std(), 1e-300)
    low, high = np.quantile(place, [0.1, 0.9], axis=0)
    rows_, columns = np.triu_indices(rows.dims)
    squares = place[:, rows_] * place[:, columns]
    beyond = [np.maximum(place - high, 0), np.maximum(low - place, 0)]
    weights = np.concatenate([place, squares, *beyond], axis=1)
    fields = weighted_fields(weights, constant_fields(rows.residual))
    return answer(asked, asked.smoother(), [fields])


def boost(rows: Rows, identity: bool) -> Evidence:
    """Does the common velocity matter? psi: linear in the velocity, and drag |v| v."""
    asked = replace(Asked.of(rows, identity), given=rows.relative)
    v = rows.vectors[:, VELOCITY]
    drag = np.linalg.norm(v, axis=1, keepdims=True) * v
    return answer(asked, asked.smoother(), [matrix_fields(v), drag])


def time_shift(rows: Rows, identity: bool) -> Evidence:
    """Does absolute time matter? psi: t and t^2, times what moves the node."""
    asked = Asked.of(rows, identity)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    time = rows.time - rows.time.mean()
    time = time / np.maximum(time.std(), 1e-300)
    weights = np.stack([time, np.square(time)], axis=1)
    fields = [*constant_fields(expected), rows.vectors[:, VELOCITY], expected]
    return answer(asked, smoother, [weighted_fields(weights, fields)])


@dataclass(frozen=True)
class Turning:
    """The answer about rotations, and what is left of the residual and of the fields psi.

    Args:
        evidence: of all psi.
        rows: that were tested.
        matrices: M of the fields M u, (m, n, n): those that rotations change.
        moments: of u, the velocity and the expected residual, E[u u^T], (2, n, n).
        left: the residual that c does not explain, in the laboratory, (R, n).
        over: what c does not explain of psi: n constant fields, then M u, (R, n + 2 m, n).
    """

    evidence: Evidence
    rows: Rows
    matrices: Array
    moments: Array
    left: Array
    over: Array


def turning_of(rows: Rows, identity: bool, axis: Array | None = None) -> Turning:
    """Does direction matter? psi: a constant field, fields M u of matrices M, and cubes.

    u is the velocity and the residual that a symmetric law predicts: this detects anisotropy. What
    treats the three axes alike, such as forces that are clipped component by component, shows in
    no matrix; for that there are cubic fields, also of the sums that weight the nearest nodes most.

    Args:
        axis: test rotations about this direction only, (n,).
    """
    order = [VELOCITY, *range(rows.vectors.shape[1] - 1, VELOCITY, -1)]
    frames = own_frames(rows.vectors[:, order], axis)
    asked = Asked.of(rows, identity, frames)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    back = np.swapaxes(frames, 1, 2)
    linear = np.stack([rows.vectors[:, VELOCITY], turned(back, expected)])  # (2, R, n)
    matrices = changed_matrices(rows.dims, axis)
    constant = np.stack(constant_fields(rows.residual), axis=1)
    if axis is not None:
        constant = constant - np.einsum("rkn,n,m->rkm", constant, axis, axis)
    fields = [np.einsum("mij,rj->rmi", matrices, u) for u in linear]
    near = [rows.vectors[:, k] for k in np.flatnonzero(rows.near)]
    cubes = np.stack([cubic_field(u, axis) for u in (*linear, *near)], axis=1)
    psi = turned(frames, np.concatenate([constant, *fields], axis=1))
    evidence = answer(asked, smoother, [psi, turned(frames, cubes)])
    flat = psi.reshape(len(psi), -1)
    over = (flat - smoother.fits(flat)).reshape(psi.shape)
    moments = np.einsum("urk,url->ukl", linear, linear) / len(psi)
    left = turned(back, asked.residual - smoother.fits(asked.residual))
    return Turning(evidence, rows, matrices, moments, left, turned(back, over))


def cubic_field(u: Array, axis: Array | None = None) -> Array:
    """sum_k u_k^3 e_k / |u|^2, without its rotationally symmetric part, (R, n)."""
    n = u.shape[1]

    def cubed(u: Array) -> Array:
        return np.asarray(u**3 / np.maximum(np.square(u).sum(1, keepdims=True), 1e-300))

    if axis is None:
        return np.asarray(cubed(u) - 3 / (n + 2) * u)
    # Of degree 4 in the angle about the axis: the mean over eight angles is exact.
    around = np.cross(np.eye(3), -axis)
    angles = np.arange(8)[:, None, None] * np.pi / 4
    turns = np.eye(3) + np.sin(angles) * around + (1 - np.cos(angles)) * around @ around
    return np.asarray(cubed(u) - np.mean([cubed(u @ q.T) @ q for q in turns], axis=0))


def changed_matrices(n: int, axis: Array | None = None) -> Array:
    """An orthonormal basis of the matrices without a rotationally symmetric part.

    M commutes with all rotations if it is a multiple of 1, and, in the plane, of the quarter turn;
    with those about an axis a, also if it is one of a a^T and of the quarter turn about a.

    Returns: (m, n, n).
    """
    invariant = [np.eye(n)]
    if n == 2 and axis is None:
        invariant.append(np.array([[0.0, -1.0], [1.0, 0.0]]))
    if axis is not None:
        invariant.append(np.outer(axis, axis))
    if n == 3 and axis is not None:
        invariant.append(np.cross(np.eye(3), axis))
    taken = np.stack(invariant).reshape(len(invariant), n * n)
    _, sizes, rows_ = np.linalg.svd(taken)
    return np.asarray(rows_[int((sizes > 1e-9).sum()) :].reshape(-1, n, n))


def mirrored(rows: Rows, identity: bool, axes: Array) -> Evidence:
    """Does handedness matter? psi: the handedness of a row, times what moves the node.

    Args:
        axes: directions that the mirror preserves, (a, n): none, if all rotations hold.
    """
    frames, hand = handed_frames(rows, axes)
    asked = Asked.of(rows, identity, frames)
    smoother = asked.smoother(REST)
    expected = asked.law(smoother)
    sizes = [np.linalg.norm(u, axis=1) for u in (asked.vectors[:, VELOCITY], expected)]
    weights = hand * np.stack([np.ones(len(hand)), *sizes], axis=1)
    along = weighted_fields(weights, constant_fields(expected))
    return answer(asked, smoother, [along, hand * expected])


def handed_frames(rows: Rows, axes: Array) -> tuple[Array, Array]:
    """Frames that are equivariant to mirrors, too, (R, n, n), and each row's handedness, (R, 1).

    Args:
        axes: directions that are preserved, (a, n).
    """
    order = [VELOCITY, *range(rows.vectors.shape[1] - 1, VELOCITY, -1)]
    fixed = np.broadcast_to(axes, (len(rows), *axes.shape))
    frames = own_frames(np.concatenate([fixed, rows.vectors[:, order]], axis=1))
    across = turned(frames, rows.vectors)[:, :, -1]  # (R, K)
    typical = np.maximum(np.abs(across).mean(0), 1e-300)
    widest = np.abs(across / typical).argmax(1)[:, None]
    hand = np.sign(np.take_along_axis(across, widest, axis=1))
    frames[:, -1] *= np.where(hand == 0, 1.0, hand)
    return frames, hand
