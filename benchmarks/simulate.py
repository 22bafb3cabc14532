"""The simulator against a NumPy loop of the same scheme, interleaved in one run.

    python benchmarks/simulate.py [--json FILE]

Prints seconds, the ratio, and how far the kernel is from what its arithmetic allows: the number of
floating-point vector instructions in the machine code of the inner loops, at this machine's rate of
independent multiply-adds, measured in the same run. Drawing the initial states, in Python, is part
of our time.
"""

import argparse
import json
import platform
import time

import numba
import numpy as np

from spacetime_en.data import simulate
from spacetime_en.data.simulation.simd import W, fma, splat, store

PAIR, ROW = 27, 5  # instructions for a pair, and for a coordinate in kick and drift
CASES = ((5, 2_000, 10_100), (30, 200, 10_100))


def numpy_loop(x, v, charge, steps):
    """One trajectory, in plain NumPy."""
    w = charge[:, None] * charge[None, :]
    for _ in range(steps):
        d = x[:, None] - x[None]
        r2 = (d**2).sum(-1)
        np.fill_diagonal(r2, 1.0)
        force = ((w / r2**1.5)[..., None] * d).sum(1)
        v = v + 0.001 * np.clip(force, -100, 100)
        x = x + 0.001 * v
    return x, v


@numba.njit
def _multiply_adds(n):
    """12 n independent vector multiply-adds, and nothing else."""
    a = splat(1.0)
    c0, c1, c2, c3, c4, c5 = a, a, a, a, a, a
    c6, c7, c8, c9, d0, d1 = a, a, a, a, a, a
    b = splat(1e-9)
    for _ in range(n):
        c0, c1, c2, c3 = fma(c0, b, a), fma(c1, b, a), fma(c2, b, a), fma(c3, b, a)
        c4, c5, c6, c7 = fma(c4, b, a), fma(c5, b, a), fma(c6, b, a), fma(c7, b, a)
        c8, c9, d0, d1 = fma(c8, b, a), fma(c9, b, a), fma(d0, b, a), fma(d1, b, a)
    out = np.zeros(W)
    store(out, 0, c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + d0 + d1)
    return out


def vector_rate() -> float:
    """The number of vector instructions (of W float64) per second on one core, measured."""
    _multiply_adds(10)
    return 12 * 5_000_000 / min(_timed(_multiply_adds, 5_000_000) for _ in range(5))


def _timed(fn, *args, **kwargs):
    start = time.perf_counter()
    fn(*args, **kwargs)
    return time.perf_counter() - start


def measure(nodes: int, num: int, steps: int, rate: float) -> dict:
    options = {"nodes": nodes, "save": [0, steps], "seed": 0}
    simulate("charged", 2 * W, nodes=nodes, save=[0, 10])  # compiled, or read from the cache
    ours = min(_timed(simulate, "charged", num, **options) for _ in range(3))
    t = simulate("charged", 3, **options)
    looped = []
    for i in range(3):
        start = time.perf_counter()
        numpy_loop(t.x[i, 0], t.v[i, 0], t.charge[i], steps)
        looped.append(time.perf_counter() - start)
    plain = float(np.median(looped))
    threads = numba.get_num_threads()
    pairs = nodes * (nodes - 1) // 2
    instructions = PAIR * pairs + ROW * 3 * nodes  # per step of one block of W
    limit = instructions * steps * num / W / threads / rate
    return {
        "nodes": nodes,
        "trajectories": num,
        "steps": steps,
        "numpy_seconds_each": plain,
        "seconds": ours,
        "ratio": plain * num / ours,
        "limit_seconds": limit,
        "share_of_limit": limit / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    path = parser.parse_args().json
    rate = vector_rate()
    threads = numba.get_num_threads()
    print(f"{platform.machine()}, {threads} threads, {rate / 1e9:.1f} G vector instructions/s each")
    rows = [measure(*case, rate) for case in CASES]
    for row in rows:
        print(
            f"N = {row['nodes']:2}, {row['trajectories']} trajectories of {row['steps']} steps: "
            f"{row['seconds']:.3f} s; NumPy loop {row['numpy_seconds_each']:.3f} s each; "
            f"{row['ratio']:,.0f} times faster; {row['share_of_limit']:.0%} of the limit"
        )
    if path:
        with open(path, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
