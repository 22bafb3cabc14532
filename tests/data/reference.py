"""The schemes as plain NumPy loops, one trajectory at a time."""

import numpy as np


def forces(system, x, w):
    """Net forces (N, n), by a loop over pairs."""
    F = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j:
                continue
            d = x[i] - x[j]
            r2 = (d**2).sum()
            if system.name == "charged":
                F[i] += w[i, j] * d / r2**1.5
            elif system.name == "gravity":
                F[i] += w[i, j] * d / (r2 + 0.01) ** 1.5
            else:
                F[i] += w[i, j] * d
    return np.clip(F, -system.max_force, system.max_force)


def integrate(system, x, v, w, mass, frames, scheme):
    """The states at `frames`: kick-drift or velocity Verlet."""
    x, v, dt, m = x.copy(), v.copy(), system.dt, mass[:, None]
    xs, vs = [], []
    for step in range(frames[-1] + 1):
        if step > 0:
            if scheme == "kick-drift":
                v += dt * forces(system, x, w) / m
                x += dt * v
            else:
                v += 0.5 * dt * forces(system, x, w) / m
                x += dt * v
                v += 0.5 * dt * forces(system, x, w) / m
        if step in frames:
            xs.append(x.copy())
            vs.append(v.copy())
    return np.stack(xs), np.stack(vs)


def egnn_generator(charge, x, v, last):
    """One simulation of EGNN's public generator, in its own arithmetic: (3, 5) arrays."""
    x, v, n = x.copy(), v.copy(), 5
    edges = np.outer(charge, charge)
    for _ in range(last):
        a = x.T
        square = (a**2).sum(axis=1)
        r2 = square.reshape(n, 1) + square.reshape(1, n) - 2 * a.dot(a.T)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = edges / np.power(r2, 3.0 / 2.0)
        np.fill_diagonal(s, 0)
        d = np.stack([np.subtract.outer(row, row) for row in x])
        F = (s.reshape(1, n, n) * d).sum(axis=-1)
        F[F > 100] = 100
        F[F < -100] = -100
        v += 0.001 * F
        x += 0.001 * v
    return x, v
