"""EGNN's N-body benchmark, replayed bit for bit.

In one of ten trajectories of this data set, charges pass so close to each other that the last bit
of the arithmetic decides where they end up. To reproduce the published data, the replay not only
draws the same random numbers but also computes in the generator's own way: squared distances as
|a|^2 + |b|^2 - 2 a.b, then ``np.power(., 1.5)``. It is the only simulation here that does not use
the compiled kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.datasets.dataset import DataSet, cached
from spacetime_en.data.steps import TargetSteps, parse_steps
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import Floats
from spacetime_en.data.windows import Windows

SAVED_STEPS = (3_100, 4_100, 4_600, 5_100)  # steps of frames 30, 40, 45 and 50
FRAME_INTERVAL = 100  # steps
TRAIN, VAL, TEST = range(3_000), range(10_000, 12_000), range(12_000, 14_000)


@dataclass(frozen=True)
class EGNNBenchmark(DataSet):
    """EGNN's N-body benchmark: frame 30 in, frame 40, 45 or 50 out.

    Args:
        target_steps: 10, 15 or 20 of the benchmark's frames, of 100 simulation steps each; or
            several of these, such as 10,15,20.
    """

    target_steps: TargetSteps = 10
    needs_scales = False

    def load(self, name: str, cache: Path) -> Task:
        """Replay the published generator; the data are kept."""
        counts = [len(TRAIN), len(VAL), len(TEST)]
        folder = cache / "egnn-nbody"
        data = cached(folder, name, sum(counts), lambda done: replay(progress=done).save(folder))
        # The one window of each run that starts at frame 30.
        ahead = FRAME_INTERVAL * parse_steps(self.target_steps)[-1]
        span = (SAVED_STEPS[0], SAVED_STEPS[0] + ahead)
        train, val, test = (
            Windows(
                data, 1, 1, self.target_steps, frame_interval=FRAME_INTERVAL, steps=span, runs=runs
            )
            for runs in np.split(np.arange(len(data)), np.cumsum(counts))[:3]
        )
        return Task(name, train, val, test)


def replay(
    runs: NDArray[np.int64] | None = None, progress: Callable[[int], None] | None = None
) -> Trajectories:
    """Simulate `runs` of the benchmark's 14,000 trajectories, at frames 30, 40, 45 and 50.

    Args:
        runs: None: the first 3,000 for training, then all those for validation and test, 7,000.
        progress: called with the number of simulations finished since the last call.
    """
    if runs is None:
        runs = np.array([*TRAIN, *VAL, *TEST])
    charge, x, v = (drawn[runs] for drawn in draw(int(runs.max()) + 1))
    states = []
    for start in range(0, len(runs), 250):  # small enough for the CPU cache
        here = slice(start, start + 250)
        states.append(_integrate(charge[here], x[here], v[here]))
        if progress:
            progress(len(states[-1]))
    both = np.concatenate(states)  # (num, 2, T, n, N)
    out_x, out_v = both.transpose(1, 0, 2, 4, 3)
    steps = np.array(SAVED_STEPS)
    meta = {"system": "charged", "source": "egnn-nbody", "seed": 43, "dt": 0.001}
    times = (steps * 0.001).astype(np.float64)
    return Trajectories(out_x, out_v, steps, times, {"charge": charge}, meta)


def draw(num: int) -> tuple[Floats, Floats, Floats]:
    """Charges (num, 5), and initial positions and velocities (num, 3, 5), from the legacy stream.

    The generator draws charges, positions and velocities, then noise twice, which it multiplies
    by 0. Positions beyond +-5 are reflected once, here only.
    """
    stream = np.random.RandomState(43)  # the published data use NumPy's legacy stream
    charge, x, v = np.empty((num, 5)), np.empty((num, 3, 5)), np.empty((num, 3, 5))
    for i in range(num):
        charge[i] = stream.choice([-1.0, 0.0, 1.0], size=(5, 1), p=[0.5, 0, 0.5])[:, 0]
        x[i] = stream.randn(3, 5)
        v[i] = stream.randn(3, 5)
        stream.randn(2, 49, 3, 5)
    v = v * 0.5 / np.sqrt((v**2).sum(axis=1, keepdims=True))
    outside = np.abs(x) > 5
    v = np.where(outside, -np.sign(x) * np.abs(v), v)
    return charge, np.where(outside, np.sign(x) * 10 - x, x), v


def _integrate(charge: Floats, x: Floats, v: Floats) -> Floats:
    """Kick, then drift, for all simulations at once: x and v (num, 3, 5) -> (num, 2, T, 3, 5)."""
    x, v = x.copy(), v.copy()
    couplings = charge[:, :, None] * charge[:, None, :]
    diagonal = np.arange(charge.shape[1])
    out = np.empty((len(x), 2, len(SAVED_STEPS), *x.shape[1:]))
    for step in range(1, SAVED_STEPS[-1] + 1):
        nodes = x.transpose(0, 2, 1)  # (num, 5, 3)
        square = (nodes**2).sum(axis=2)
        products = np.matmul(nodes, nodes.transpose(0, 2, 1))
        r2 = square[:, :, None] + square[:, None, :] - 2 * products
        with np.errstate(divide="ignore", invalid="ignore"):
            s = couplings / np.power(r2, 1.5)
        s[:, diagonal, diagonal] = 0
        force = (s[:, None] * (x[:, :, :, None] - x[:, :, None, :])).sum(axis=-1)
        v += 0.001 * np.clip(force, -100, 100)
        x += 0.001 * v
        if step in SAVED_STEPS:
            out[:, 0, SAVED_STEPS.index(step)], out[:, 1, SAVED_STEPS.index(step)] = x, v
    return out
