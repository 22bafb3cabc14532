"""Equivariant frames of windows: axes made of a row's own vectors, which rotate with it.

For a frame h(z) with h(g z) = h(z) g^-1, the law P(y | z) has the symmetry g if and only if h y,
given the window in its own frame, h z, does not depend on h.
"""

from __future__ import annotations

import numpy as np

from spacetime_en.symmetries.rows import Array

_ROUNDING = 1e-9  # relative to the length of a vector


def own_frames(vectors: Array, axis: Array | None = None) -> Array:
    """Rotations to each row's own frame, (R, n, n), det = 1: Gram-Schmidt on its vectors.

    A row whose vectors are parallel, or zero, gets laboratory axes instead: a frame that does not
    rotate with the row, and carries no information.

    Args:
        vectors: (R, K, n), the most reliable first.
        axis: keep this direction as the first of every frame, (n,); None: none.
    """
    R, _, n = vectors.shape
    laboratory = np.broadcast_to(np.eye(n), (R, n, n))
    given = [] if axis is None else [np.broadcast_to(axis, (R, 1, n))]
    candidates = np.concatenate([*given, vectors, laboratory], axis=1)
    frame = np.zeros((R, n, n))
    found = np.zeros(R, dtype=int)
    for k in range(candidates.shape[1]):
        vector = candidates[:, k]
        rest = vector - np.einsum("rij,ri->rj", frame, np.einsum("rij,rj->ri", frame, vector))
        length = np.linalg.norm(rest, axis=1)
        new = (found < n) & (length > 1e-6 * np.linalg.norm(vector, axis=1)) & (length > 0)
        frame[new, found[new]] = rest[new] / length[new, None]
        found += new
    frame[np.linalg.det(frame) < 0, -1] *= -1
    return frame


def turned(frames: Array, vectors: Array) -> Array:
    """Vectors of each row in its frame: (R, n, n) and (R, n) or (R, K, n) -> the same shape.

    Components that are rounding errors, as of vectors that frames are made of, are set to 0: once
    standardised, they would count like any other.
    """
    if vectors.ndim == 2:
        return turned(frames, vectors[:, None])[:, 0]
    found = np.einsum("rij,rkj->rki", frames, vectors)
    length = np.linalg.norm(vectors, axis=2, keepdims=True)
    return np.asarray(np.where(np.abs(found) < _ROUNDING * length, 0.0, found))
