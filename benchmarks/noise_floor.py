"""The lowest error that any forecast from noisy observations can have: the Bayes floor.

``python benchmarks/noise_floor.py --target-steps 100 --length 1 10 30`` draws, for test windows of
charged-noisy, states that could have produced the observations, propagates each of them to the
target time by the true law, and prints

- the error of their mean, the best possible forecast, against the clean target;
- their spread, which on average is the same number if the samples are correct;
- the distance between the means of two independent halves of the samples, relative to what their
  spread implies: 1 if the samples of a window are effectively independent.

The particles start from a distribution that is known here (but not to any model): positions from a
normal distribution, velocities of fixed speed. With accelerations held constant over the window,
the states given the observations can be drawn exactly; in stages, weighting, resampling and random
moves turn them into samples for accelerations that change.
"""

import argparse
import itertools

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.datasets.registry import load_task
from spacetime_en.data.simulation.simulator import integrate
from spacetime_en.data.simulation.systems import SYSTEMS

SYSTEM = SYSTEMS["charged"]
SPEED = 0.5  # of every particle at the start
# The weight of the true law in the likelihood, stage by stage.
STAGES = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.55, 0.75, 1.0)
MOVES = 4 * (0.6, 0.3, 0.15, 0.05)  # relative to the uncertainty that observations leave
Array = NDArray[np.float64]


def accelerations(x: Array, charge: Array) -> Array:
    """Accelerations of particles at x (..., N, n), as in the generator."""
    x_ij = x[..., :, None, :] - x[..., None, :, :]
    r2 = (x_ij**2).sum(-1) + 1e-12
    pull = charge[..., :, None] * charge[..., None, :] / r2**1.5
    return (pull[..., None] * x_ij).sum(-2).clip(-SYSTEM.max_force, SYSTEM.max_force)


class Observed:
    """Some windows, with the states at their first frame that could have produced them.

    Args:
        x, v: as observed, (W, L, N, n).
        t: times of the frames, (L,).
        noise: its variance.
        charge: (W, N).
    """

    def __init__(self, x: Array, v: Array, t: Array, noise: float, charge: Array) -> None:
        self.x, self.v, self.t, self.noise, self.charge = x, v, t, noise, charge
        self.sigma2 = (x.shape[2] / 5) ** (2 / 3)  # of the positions at the start

    def draw(self, a: Array, samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """States x, v, each (S, W, N, n), if accelerations `a` (W, N, n) were constant.

        Given v the position is normal; without it, the velocity has a normal likelihood of
        precision P about m, which on the sphere of one speed is a von Mises-Fisher distribution.
        """
        t, s2, a = self.t, self.noise, a[:, None]
        time = t[:, None, None]
        x = self.x - time**2 / 2 * a  # x0 + t v0 + noise
        v = self.v - time * a  # v0 + noise
        precision = len(t) / s2 + 1 / self.sigma2  # of x0
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
        """The negative log-likelihood of motions x, v (S, W, L, N, n), (S, W)."""
        square = (x - self.x) ** 2 + (v - self.v) ** 2
        misfit: Array = square.sum((2, 3, 4)) / (2 * self.noise)
        return misfit


def moved(x: Array, v: Array, charge: Array, steps: NDArray[np.int64]) -> tuple[Array, Array]:
    """The true motions of states x, v (S, W, N, n) at `steps`, (S, W, T, N, n) each."""
    S, W, N, n = x.shape
    flat = (t.reshape(-1, N, n) for t in (x, v))
    ends = integrate(SYSTEM, *flat, {"charge": np.tile(charge, (S, 1))}, steps)
    x, v = (end.reshape(S, W, len(steps), N, n) for end in ends)
    return x, v


def posterior(
    seen: Observed, steps: NDArray[np.int64], samples: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Samples of the possible states at the first frame, x and v, (S, W, N, n) each.

    Args:
        steps: of the frames, (L,).
    """
    a = np.zeros_like(seen.x[:, 0])
    for _ in range(2):
        a = accelerations(seen.draw(a, 64, rng)[0], seen.charge).mean(0)
    t = seen.t[:, None, None]

    def misfits(x: Array, v: Array) -> Array:
        """With constant accelerations, and with the true ones, (2, S, W)."""
        constant = x[:, :, None] + t * v[:, :, None] + t**2 / 2 * a[:, None]
        both = seen.misfit(constant, v[:, :, None] + t * a[:, None])
        return np.stack([both, seen.misfit(*moved(x, v, seen.charge, steps))])

    x, v = seen.draw(a, samples, rng)
    current = misfits(x, v)
    width = (1 / (len(seen.t) / seen.noise + 1)) ** 0.5  # of the remaining uncertainty
    for before, fraction in itertools.pairwise(STAGES):
        weight = (fraction - before) * (current[0] - current[1])
        weight = np.exp(weight - weight.max(0))
        edges = np.cumsum(weight / weight.sum(0), axis=0)  # (S, W)
        marks = (np.arange(samples) + rng.random()) / samples
        kept = np.stack([np.searchsorted(edges[:, w], marks) for w in range(x.shape[1])], axis=1)
        kept = kept.clip(max=samples - 1)
        x, v = (np.take_along_axis(s, kept[..., None, None], 0) for s in (x, v))
        current = np.take_along_axis(current, kept[None], 1)
        for size in MOVES:
            x_new = x + size * width * rng.standard_normal(x.shape)
            v_new = v + size * width * rng.standard_normal(v.shape)
            v_new *= SPEED / np.linalg.norm(v_new, axis=-1, keepdims=True)
            new = misfits(x_new, v_new)
            gain = (1 - fraction) * (current - new)[0] + fraction * (current - new)[1]
            gain += ((x**2 - x_new**2) / (2 * seen.sigma2)).sum((2, 3))
            accepted = np.log(rng.random(gain.shape)) < gain
            x = np.where(accepted[..., None, None], x_new, x)
            v = np.where(accepted[..., None, None], v_new, v)
            current = np.where(accepted, new, current)
    return x, v


def floor(length: int, target_steps: int, windows: int, samples: int) -> dict[str, float]:
    """The numbers printed for windows of `length` frames."""
    task = load_task("charged-noisy", length=length, target_steps=target_steps, targets="clean")
    test = task.test
    runs, frames = test.locate(np.arange(min(windows, len(test))))
    graph, target = test[: len(runs)]
    steps = test.trajectories.steps[frames[0]]
    seen = Observed(
        graph.x.double().numpy(),
        graph.v.double().numpy(),
        test.trajectories.times[frames[0, :-1]],
        test.noise,
        np.asarray(test.trajectories.attributes["charge"])[runs],
    )
    means, spreads = [], []
    for half in range(2):
        x, v = posterior(seen, steps[:-1], samples // 2, np.random.default_rng(half))
        ends = moved(x, v, seen.charge, steps[-1:])[0][:, :, 0]
        means.append(ends.mean(0))
        spreads.append(ends.var(0, ddof=1).mean((1, 2)))
    # The product of independent errors, which leaves out the variance of a mean of few samples.
    off = [mean - target.x.double().numpy() for mean in means]
    error, spread = (off[0] * off[1]).mean((1, 2)), np.mean(spreads)
    apart = ((means[0] - means[1]) ** 2).mean() / (4 * spread / samples)
    return {
        "error of the mean": float(error.mean()),
        "+-": float(error.std() / len(error) ** 0.5),
        "spread": float(spread),
        "halves apart": float(apart),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target-steps", type=int, default=1_000)
    parser.add_argument("--length", type=int, nargs="+", default=[10])
    parser.add_argument("--windows", type=int, default=2_000, help="of the test windows")
    parser.add_argument("--samples", type=int, default=100, help="of each window")
    given = parser.parse_args()
    for length in given.length:
        found = floor(length, given.target_steps, given.windows, given.samples)
        print(f"L = {length:2}, target_steps = {given.target_steps}: ", end="")
        print(", ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
