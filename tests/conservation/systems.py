"""Small data sets with known and with invented physics."""

from functools import cache

import numpy as np

from spacetime_en.conservation.paths import Paths, true_paths
from spacetime_en.data import Task, Trajectories, simulate

WINDOWS = {"length": 6, "stride": 1, "target_steps": "1..5"}


@cache
def simulated(name: str, **options: int) -> Task:
    """Runs of 1 time unit, every one a path of 11 states."""
    runs = simulate(name, 400, save=range(0, 1001, 100), seed=1, scheme="adaptive", **options)
    return Task.from_trajectories(runs, counts=(300, 20, 80), **WINDOWS)


def chained(friction: float = 0.0, field: float = 0.0, num: int = 300) -> Task:
    """Four nodes on springs of strength 1, braked, or pushed by a field that swings in time."""
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, num, 4, 2))
    direction, phase = rng.standard_normal((num, 1, 2)), rng.uniform(0, 7, (num, 1, 1))
    dt, frames = 0.002, []
    for step in range(1001):
        if step % 100 == 0:
            frames.append((x.copy(), v.copy()))
        pull = x.mean(1, keepdims=True) - x
        push = field * direction * np.sin(5 * dt * step + phase)
        v += dt * (4 * pull + push - friction * v)
        x += dt * v
    x, v = (np.stack(t, axis=1) for t in zip(*frames, strict=True))
    runs = Trajectories.from_arrays(x, v, times=100 * dt * np.arange(11))
    return Task.from_trajectories(runs, counts=(num - 80, 20, 60), **WINDOWS)


def both_paths(task: Task) -> tuple[Paths, Paths]:
    """Paths to learn from, and to check on."""
    return true_paths(task.train), true_paths(task.test)
