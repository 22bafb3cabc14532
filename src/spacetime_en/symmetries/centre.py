"""The centre of a round field, if it is one: the mean of a sample is only near it.

About another point the field is not round, and its first term there is a constant force, which
passes for a preferred direction of space.
"""

from __future__ import annotations

import numpy as np

from spacetime_en.symmetries.questions import Asked, handed_frames
from spacetime_en.symmetries.rows import Array, Rows

_REACH = 0.15  # step size, in standard deviations of the position
_MOST_STEPS = 5


def centre_of(rows: Rows, identity: bool) -> Array:
    """The point about which a rotationally symmetric law forecasts best, (n,).

    From the mean position, by parabolas through the held-out errors at three points on each axis.
    """
    centre = rows.position.mean(0)
    reach = _REACH * float(np.sqrt(rows.position.var(0).mean()))
    for _ in range(_MOST_STEPS):
        step = np.array([_step(rows, identity, centre, reach * e) for e in np.eye(rows.dims)])
        centre = centre + reach * step
        if np.abs(step).max() < 1:
            break
    return np.asarray(centre)


def _step(rows: Rows, identity: bool, centre: Array, reach: Array) -> float:
    """How many times `reach` to move, at most once: to the minimum of the parabola."""
    back, here, ahead = (_error(rows, identity, centre + k * reach) for k in (-1, 0, 1))
    curvature = back + ahead - 2 * here
    if curvature <= 0:
        return 0.0
    return float(np.clip((back - ahead) / 2 / curvature, -1, 1))


def _error(rows: Rows, identity: bool, centre: Array) -> float:
    """The held-out squared error of forecasts in frames that rotate with the rows."""
    about = rows.with_place(centre)
    frames, _ = handed_frames(about, np.zeros((0, rows.dims)))
    asked = Asked.of(about, identity, frames)
    return float(np.square(asked.residual - asked.smoother().fits(asked.residual)).sum())
