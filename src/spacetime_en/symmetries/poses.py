"""Are windows rotated in enough ways to tell whether the law of motion is equivariant?

If everybody walks along one line, a law that knows this line and one that knows each heading make
the same forecasts, and no test can tell them apart. The frame of a window is then not spread over
the group: what is left of psi given c is what c, a part of the window, does not know of the rest,
and passes for a broken symmetry.
"""

from __future__ import annotations

import numpy as np

from spacetime_en.symmetries.rows import VELOCITY, Array, Rows

ALIKE = 0.9  # fraction of the shapes of windows, as a length, that is common to all
FLAT = 0.02  # fraction of the sum of squared lengths that is perpendicular to a plane


def same_pose(rows: Rows, axis: Array | None = None) -> str | None:
    """Why rotations cannot be told from what windows have in common; None: they can.

    Three shapes of each window count, as sums u u^T, (n, n), of trace 1: of its mean velocity, of
    the velocities of its nodes, and of their positions about their mean. For random orientations
    their mean is 1 / n.

    Args:
        axis: consider rotations about this direction only: components along it do not count, (n,).
    """
    across = np.eye(rows.dims) if axis is None else np.eye(rows.dims) - np.outer(axis, axis)
    v = rows.vectors[:, VELOCITY] @ across
    x = rows.position @ across
    mean_v, mean_x = _means(v, rows), _means(x, rows)
    heading = mean_v / np.maximum(np.linalg.norm(mean_v, axis=1, keepdims=True), 1e-300)
    shapes = (_outer(mean_v), _sums(_outer(v), rows), _sums(_outer(x - mean_x[rows.window]), rows))
    of_heading, of_velocities, of_places = (_alike(shape, across) for shape in shapes)
    same = np.linalg.norm(heading.mean(0)) > ALIKE
    if of_heading > ALIKE or (rows.dims == 1 and same):
        return "all windows head the same way" if same else "all windows head along one line"
    if max(of_velocities, of_places) > ALIKE:
        return "all windows are turned the same way"
    if axis is None and max(_least(shape) for shape in shapes[1:]) < FLAT:
        return "all windows lie in one plane"
    return None


def _outer(vectors: Array) -> Array:
    return np.asarray(np.einsum("ri,rj->rij", vectors, vectors))


def _sums(values: Array, rows: Rows) -> Array:
    """Sums over the nodes of each window, (R, ...) -> (W, ...)."""
    sums = np.zeros((rows.windows, *values.shape[1:]))
    np.add.at(sums, rows.window, values)
    return sums


def _means(values: Array, rows: Rows) -> Array:
    """Means over the nodes of each window, (R, n) -> (W, n)."""
    count = np.bincount(rows.window, minlength=rows.windows)
    return np.asarray(_sums(values, rows) / np.maximum(count, 1)[:, None])


def _of_trace_1(shapes: Array) -> Array:
    """Those that are not zero, (W', n, n)."""
    size = np.trace(shapes, axis1=1, axis2=2)
    return np.asarray(shapes[size > 0] / size[size > 0, None, None])


def _alike(shapes: Array, across: Array) -> float:
    """The size of the mean relative to the shapes, both without their isotropic part; 0 to 1."""
    shapes = _of_trace_1(shapes) - across / np.trace(across)
    size = np.square(shapes).sum((1, 2))
    return float(np.linalg.norm(shapes.mean(0)) / np.sqrt(size.mean())) if size.any() else 0.0


def _least(shapes: Array) -> float:
    """The least extent in any direction; 0 for windows without shapes."""
    shapes = _of_trace_1(shapes)
    return float(np.linalg.eigvalsh(shapes.mean(0))[0]) if len(shapes) else 0.0
