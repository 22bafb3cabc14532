"""The least error that any forecast from noisy observations can have: the Bayes floor.

``python benchmarks/noise_floor.py --horizon 1000 --length 1 10 30`` draws, for test windows of
charged-noisy, states that could have produced the observations, moves each of them to the target
time by the true law, and prints

- the error of their mean, the best forecast there is, against the clean target;
- their spread, which must be the same number on average if the samples are right.

The particles start from a distribution that is known here (and to nobody else): positions from a
normal distribution, velocities of one speed. With accelerations held constant over the window,
the states given the observations could be drawn exactly; weights correct for those that change.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.simulation import integrate
from spacetime_en.data.systems import SYSTEMS
from spacetime_en.data.tasks import load_task

SYSTEM = SYSTEMS["charged"]
SPEED = 0.5  # of every particle at the start
Array = NDArray[np.float64]


def accelerations(x: Array, charge: Array) -> Array:
    """Of particles at x (..., N, n), as the generator has them."""
    x_ij = x[..., :, None, :] - x[..., None, :, :]
    r2 = (x_ij**2).sum(-1) + 1e-12
    pull = charge[..., :, None] * charge[..., None, :] / r2**1.5
    return (pull[..., None] * x_ij).sum(-2).clip(-SYSTEM.max_force, SYSTEM.max_force)


class Observed:
    """Some windows, and the states at their first frame that could have produced them.

    Args:
        x, v: as observed, (W, L, N, n).
        t: times of the frames, (L,).
        noise: its variance.
        charge: (W, N).
    """

    def __init__(self, x: Array, v: Array, t: Array, noise: float, charge: Array) -> None:
        self.x, self.v, self.t, self.noise, self.charge = x, v, t, noise, charge

    def draw(self, a: Array, samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """States x, v, each (S, W, N, n), if accelerations `a` (W, N, n) were constant.

        Given v the position is normal; without it, the velocity has a normal likelihood of
        precision P about m, which on the sphere of one speed is a von Mises-Fisher distribution.
        """
        t, s2, a = self.t, self.noise, a[:, None]
        time = t[:, None, None]
        x = self.x - time**2 / 2 * a  # x0 + t v0 + noise
        v = self.v - time * a  # v0 + noise
        sigma2 = (x.shape[2] / 5) ** (2 / 3)
        precision = len(t) / s2 + 1 / sigma2  # of x0
        P = len(t) / s2 + (t**2).sum() / s2 - (t.sum() / s2) ** 2 / precision
        pull = v.sum(1) / s2 + (time * x).sum(1) / s2 - t.sum() / s2 * x.sum(1) / s2 / precision
        m = pull / P
        size = np.linalg.norm(m, axis=-1)
        kappa = P * SPEED * size
        u = rng.random((samples, *size.shape))
        cosine = 1 + np.log(u + (1 - u) * np.exp(-2 * kappa)) / kappa
        along = m / size[..., None]
        across = rng.standard_normal((samples, *m.shape))
        across -= (across * along).sum(-1, keepdims=True) * along
        across /= np.linalg.norm(across, axis=-1, keepdims=True)
        sine = np.sqrt((1 - cosine**2).clip(0))
        v0 = SPEED * (cosine[..., None] * along + sine[..., None] * across)
        middle = (x.sum(1) - t.sum() * v0) / s2 / precision
        return middle + rng.standard_normal(v0.shape) / precision**0.5, v0

    def misfit(self, x: Array, v: Array) -> Array:
        """Minus the logarithm of the likelihood of motions x, v (S, W, L, N, n), (S, W)."""
        square = (x - self.x) ** 2 + (v - self.v) ** 2
        found: Array = square.sum((2, 3, 4)) / (2 * self.noise)
        return found


def posterior(
    seen: Observed, steps: NDArray[np.int64], samples: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Positions at the last of `steps` that could be, (S, W, N, n), and their weights, (S, W)."""
    a = np.zeros_like(seen.x[:, 0])
    for _ in range(2):
        a = accelerations(seen.draw(a, 64, rng)[0], seen.charge).mean(0)
    x0, v0 = seen.draw(a, samples, rng)
    flat = x0.reshape(-1, *x0.shape[2:]), v0.reshape(-1, *v0.shape[2:])
    charge = np.tile(seen.charge, (samples, 1))
    x, v = (
        moved.reshape(*x0.shape[:2], len(steps), *x0.shape[2:])
        for moved in integrate(SYSTEM, *flat, {"charge": charge}, steps)
    )
    t = seen.t[:, None, None]
    constant = (
        x0[:, :, None] + t * v0[:, :, None] + t**2 / 2 * a[:, None],
        v0[:, :, None] + t * a[:, None],
    )
    log_weight = seen.misfit(*constant) - seen.misfit(x[:, :, :-1], v[:, :, :-1])
    weight = np.exp(log_weight - log_weight.max(0))
    return x[:, :, -1], weight / weight.sum(0)


def floor(length: int, horizon: int, windows: int, samples: int) -> dict[str, float]:
    """What is printed for windows of `length` frames."""
    task = load_task("charged-noisy", length=length, horizon=horizon, targets="clean")
    test = task.test
    runs, frames = test.places(np.arange(min(windows, len(test))))
    graph, target = test[: len(runs)]
    steps = test.trajectories.steps[frames[0]]
    seen = Observed(
        graph.x.double().numpy(),
        graph.v.double().numpy(),
        test.trajectories.times[frames[0, :-1]],
        test.noise,
        np.asarray(test.trajectories.attributes["charge"])[runs],
    )
    x, weight = posterior(seen, steps, samples, np.random.default_rng(0))
    mean = np.einsum("sw,swnc->wnc", weight, x)
    per_window = ((mean - target.x.double().numpy()) ** 2).mean((1, 2))
    # Samples of weights w show 1 - sum w^2 of the spread, and their mean misses by sum w^2 of it.
    shown = 1 - (weight**2).sum(0)
    spread = np.einsum("sw,swnc->wnc", weight, (x - mean) ** 2).mean((1, 2)) / shown
    own = spread * (1 - shown)
    return {
        "error of the mean": float((per_window - own).mean()),
        "+-": float(per_window.std() / len(per_window) ** 0.5),
        "spread": float(spread.mean()),
        "effective samples": float(np.median(1 / (weight**2).sum(0))),
        "windows with fewer than 10": float((1 / (weight**2).sum(0) < 10).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--length", type=int, nargs="+", default=[10])
    parser.add_argument("--windows", type=int, default=2_000, help="of the test windows")
    parser.add_argument("--samples", type=int, default=100, help="of each window")
    given = parser.parse_args()
    for length in given.length:
        found = floor(length, given.horizon, given.windows, given.samples)
        print(f"L = {length:2}, H = {given.horizon}: ", end="")
        print(", ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
