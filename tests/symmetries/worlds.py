"""Worlds with a known law, also seen from elsewhere, or weakened."""

import numpy as np

from spacetime_en.data import Task, Trajectories

QUARTER = np.array([[1.0, -1.0], [1.0, 1.0]]) / 2**0.5  # of a half turn, in the plane


def again(task: Task, turn=None, *, length: int = 4, measured: bool = True) -> Task:
    """The same recordings, turned, with windows of another length, or without velocities."""
    t = task.train.trajectories
    x, v = (np.asarray(a, dtype=float) for a in (t.x, t.v))
    if turn is not None:
        x, v = x @ turn.T, v @ turn.T
    seen = Trajectories.from_arrays(
        x, v if measured else None, times=np.asarray(t.times), observed=t.observed
    )
    return Task.from_trajectories(seen, length=length, stride=1, target_steps=1)


def jittered(runs: int, frames: int, dims: int, seed: int) -> Task:
    """One node of independent second differences: no law, so that every symmetry holds."""
    rng = np.random.default_rng(seed)
    v = 3 * rng.standard_normal((runs, 1, 1, dims))
    v = v + 0.3 * rng.standard_normal((runs, frames, 1, dims)).cumsum(1)
    seen = Trajectories.from_arrays(v.cumsum(1), times=np.arange(float(frames)))
    return Task.from_trajectories(seen, length=4, stride=1, target_steps=1)
