"""About which axis rotations hold, if not about all: the null direction of what breaks them."""

from __future__ import annotations

import numpy as np

from spacetime_en.symmetries.questions import Turning
from spacetime_en.symmetries.rows import Array

HALVINGS = 20
NEAR = np.cos(np.deg2rad(15))  # an axis of the laboratory this near is the one that is meant


def axis_of(turning: Turning) -> Array:
    """The axis about which rotations change the broken part of the law least, (3,).

    That part is fitted as f(z) = b + sum_u M_u u. A rotation with generator A changes it by
    L_A f = A b + sum_u [A, M_u] u, so that Q_ab = E[L_a f . L_b f] is a quadratic form on so(3),
    whose least eigenvector is the axis. Two fits on halves of the recordings, one for each factor,
    keep their noise out of Q. A gravity leaves the sign open; it is taken against b.
    """
    rows = turning.rows
    generator = np.random.default_rng(0)
    q = turning.over.shape[1]
    gram = np.zeros((rows.groups.count, q, q))
    side = np.zeros((rows.groups.count, q))
    np.add.at(gram, rows.group, np.einsum("rpn,rqn->rpq", turning.over, turning.over))
    np.add.at(side, rows.group, np.einsum("rqn,rn->rq", turning.over, turning.left))
    form = np.zeros((3, 3))
    for _ in range(HALVINGS):
        half = generator.permutation(rows.groups.count) % 2 == 0
        first, second = (
            _changes(_fitted(gram[part].sum(0), side[part].sum(0)), turning)
            for part in (half, ~half)
        )
        form += np.einsum("aui,bui->ab", first, second) / HALVINGS
    _, directions = np.linalg.eigh((form + form.T) / 2)
    axis = directions[:, 0]
    constant = _fitted(gram.sum(0), side.sum(0))[:3]
    nearest = int(np.abs(axis).argmax())
    if abs(axis[nearest]) > NEAR:
        axis = np.eye(3)[nearest] * np.sign(axis[nearest])
    against = -float(constant @ axis)
    return axis if against >= 0 else -axis


def _fitted(gram: Array, side: Array) -> Array:
    """The weights of the fields, (q,)."""
    q = len(side)
    return np.asarray(np.linalg.solve(gram + 1e-3 * np.trace(gram) / q * np.eye(q), side))


def _changes(beta: Array, turning: Turning) -> Array:
    """L_a f for the three generators, in an orthonormal basis of fields, (3, 1 + 2 n, n)."""
    m = len(turning.matrices)
    b = beta[:3]
    weights = beta[3:].reshape(2, m)  # of M u, for each u
    parts = np.einsum("um,mij->uij", weights, turning.matrices)
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
