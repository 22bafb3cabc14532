"""Directions that a partly broken symmetry preserves: an axis of rotation, and mirror planes."""

from __future__ import annotations

import numpy as np

from spacetime_en.symmetries.questions import Turning
from spacetime_en.symmetries.rows import Array

HALVINGS = 20
NEAR = np.cos(np.deg2rad(15))  # a laboratory axis this close is taken to be the one that is meant
SEEN = 4.0  # standard errors at which a constant field counts as present


def axes_of(turning: Turning) -> list[Array]:
    """Candidates for an up direction, likeliest first, (n,) each, to be confirmed by a test.

    In the plane: the direction of a constant field, if there is one; in space: the axis about which
    rotations change the broken part of the law least. It points against the mean residual, in
    which forces between nodes cancel.
    """
    n = turning.rows.dims
    if n == 2 and np.linalg.norm(turning.evidence.z[:2]) < SEEN:
        return []
    pull = _mean_pull(turning)
    axis = -pull if n == 2 else _least_changed(turning)
    axis = axis if pull @ axis <= 0 else -axis
    nearest = int(np.abs(axis).argmax())
    found = [axis]
    if abs(axis[nearest]) > NEAR:
        found.insert(0, np.eye(n)[nearest] * np.sign(axis[nearest]))
    return found


def mirrors_of(turning: Turning) -> list[Array]:
    """Unit normals of mirrors that may hold where rotations do not, (n,) each.

    The axes of the laboratory, those of the symmetric parts of the matrices found, and, in the
    plane, the direction perpendicular to the mean residual.
    """
    n = turning.rows.dims
    found = list(np.eye(n))
    gram, side = _sums(turning)
    for M in _matrices(_fitted(gram.sum(0), side.sum(0)), turning):
        found += list(np.linalg.eigh(M + M.T)[1].T)
    if n == 2:
        x, y = _mean_pull(turning)
        found.append(np.array([-y, x]))
    return found


def _mean_pull(turning: Turning) -> Array:
    """The direction of the mean residual, (n,)."""
    pull = turning.rows.residual.mean(0)
    return np.asarray(pull / max(float(np.linalg.norm(pull)), 1e-300))


def _least_changed(turning: Turning) -> Array:
    """The axis about which rotations change the broken part of the law least, (3,).

    That part is fitted as f(z) = b + sum_u M_u u. A rotation with generator A changes it by
    L_A f = A b + sum_u [A, M_u] u, so that Q_ab = E[L_a f . L_b f] is a quadratic form on so(3),
    whose least eigenvector is the axis. Two fits on halves of the recordings, one for each factor,
    keep their noise out of Q.
    """
    generator = np.random.default_rng(0)
    gram, side = _sums(turning)
    form = np.zeros((3, 3))
    for _ in range(HALVINGS):
        half = generator.permutation(len(gram)) % 2 == 0
        first, second = (
            _changes(_fitted(gram[part].sum(0), side[part].sum(0)), turning)
            for part in (half, ~half)
        )
        form += np.einsum("aui,bui->ab", first, second) / HALVINGS
    _, directions = np.linalg.eigh((form + form.T) / 2)
    return np.asarray(directions[:, 0])


def _sums(turning: Turning) -> tuple[Array, Array]:
    """The sums over each group that a regression on the fields needs, (G, q, q) and (G, q)."""
    rows, q = turning.rows, turning.over.shape[1]
    gram = np.zeros((rows.groups.count, q, q))
    side = np.zeros((rows.groups.count, q))
    np.add.at(gram, rows.group, np.einsum("rpn,rqn->rpq", turning.over, turning.over))
    np.add.at(side, rows.group, np.einsum("rqn,rn->rq", turning.over, turning.left))
    return gram, side


def _fitted(gram: Array, side: Array) -> Array:
    """The weights of the fields, (q,)."""
    q = len(side)
    return np.asarray(np.linalg.solve(gram + 1e-3 * np.trace(gram) / q * np.eye(q), side))


def _matrices(beta: Array, turning: Turning) -> Array:
    """M of the velocity and of the expected residual, (2, n, n)."""
    weights = beta[turning.rows.dims :].reshape(2, -1)
    return np.asarray(np.einsum("um,mij->uij", weights, turning.matrices))


def _changes(beta: Array, turning: Turning) -> Array:
    """L_a f for the three generators, in an orthonormal basis of fields, (3, 1 + 2 n, n)."""
    b, parts = beta[:3], _matrices(beta, turning)
    changes = []
    for e in np.eye(3):
        A = -np.cross(np.eye(3), e)  # A x = e x x
        linear = []
        for M, moment in zip(parts, turning.moments, strict=True):
            sizes, axes = np.linalg.eigh(moment)
            root = axes * np.sqrt(np.maximum(sizes, 0))  # moment = root root^T
            linear.append(((A @ M - M @ A) @ root).T)
        changes.append(np.concatenate([(A @ b)[None], *linear]))
    return np.stack(changes)
