"""Compiled integrators for particles with central pair forces.

The force on node i from node j is s (x_i - x_j), where s = law(|x_i - x_j|^2, w_ij, parameter).
Trajectories advance W at a time (:mod:`spacetime_en.data.simulation.simd`); a block of W holds its
state in flat arrays of rows of W numbers: row 3i + k is coordinate k of node i. Planar systems have
a third coordinate that stays 0.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange

from spacetime_en.data.simulation.simd import (
    W,
    clip,
    fma,
    largest,
    load,
    maximum,
    rsqrt,
    splat,
    store,
)
from spacetime_en.data.simulation.systems import SPRING

# Yoshida's coefficients: three leapfrog steps of these lengths form one fourth-order step.
_OUTER = 1 / (2 - 2 ** (1 / 3))
_INNER = 1 - 2 * _OUTER


@numba.njit(inline="always")
def law(kind, r2, w, parameter):
    """The factor s of the built-in systems; w < 0 attracts."""
    if kind == SPRING:
        return w
    y = rsqrt(r2 + parameter)  # parameter: the softening length squared
    return (w * y) * (y * y)  # two independent products: this loop is bound by latency


@numba.njit(inline="always")
def _forces(X, F, w, M, nodes, kind, parameter):
    """Write the net forces to F; return the largest |s| (1/m_i + 1/m_j) of any pair, per lane.

    This number is 1 / t^2 for the shortest time t in which a pair moves by its own distance.
    """
    stiffest = splat(0.0)
    soft = splat(parameter)
    p = 0
    for i in range(nodes):
        a = 3 * i * W
        x, y, z = load(X, a), load(X, a + W), load(X, a + 2 * W)
        fx, fy, fz = splat(0.0), splat(0.0), splat(0.0)
        for j in range(i):
            b = 3 * j * W
            dx, dy, dz = x - load(X, b), y - load(X, b + W), z - load(X, b + 2 * W)
            r2 = fma(dz, dz, fma(dy, dy, dx * dx))
            s = law(kind, r2, load(w, p), soft)
            p += W
            fx, fy, fz = fma(dx, s, fx), fma(dy, s, fy), fma(dz, s, fz)
            t = splat(0.0) - s  # action and reaction
            store(F, b, fma(dx, t, load(F, b)))
            store(F, b + W, fma(dy, t, load(F, b + W)))
            store(F, b + 2 * W, fma(dz, t, load(F, b + 2 * W)))
            stiffest = maximum(stiffest, maximum(s, t) * (load(M, i * W) + load(M, j * W)))
        store(F, a, fx)
        store(F, a + W, fy)
        store(F, a + 2 * W, fz)
    return stiffest


@numba.njit(inline="always")
def _kick(V, F, M, nodes, dt, limit):
    """v <- v + dt F / m, each component of F clipped to +-limit; dt may differ between lanes."""
    bound = splat(limit)
    for i in range(nodes):
        step = dt * load(M, i * W)
        for row in range(3 * i * W, 3 * (i + 1) * W, W):
            store(V, row, fma(clip(load(F, row), bound), step, load(V, row)))


@numba.njit(inline="always")
def _drift(X, V, nodes, dt):
    """x <- x + dt v."""
    for row in range(0, 3 * nodes * W, W):
        store(X, row, fma(load(V, row), dt, load(X, row)))


@numba.njit(parallel=True, error_model="numpy", cache=True)
def kick_drift(x, v, w, m, dt, limit, kind, parameter, save, out_x, out_v):
    """Kick, then drift, with fixed steps: the scheme of the paper's data.

    Args:
        x, v: initial states, (blocks, 3 N W), see the top of this file.
        w: couplings of the pairs j < i, (blocks, N(N-1)/2 W).
        m: inverse masses, (blocks, N W).
        save: numbers of steps, increasing, at which states are written.
        out_x, out_v: (blocks, len(save), 3 N W).
    """
    nodes = m.shape[1] // W
    step = splat(dt)
    for block in prange(x.shape[0]):
        X, V, F = x[block].copy(), v[block].copy(), np.zeros(x.shape[1])
        pairs, masses = w[block], m[block]
        done = 0
        for k in range(len(save)):
            for _ in range(save[k] - done):
                _forces(X, F, pairs, masses, nodes, kind, parameter)
                _kick(V, F, masses, nodes, step, limit)
                _drift(X, V, nodes, step)
            done = save[k]
            out_x[block, k] = X
            out_v[block, k] = V


@numba.njit(parallel=True, error_model="numpy", cache=True)
def verlet(x, v, w, m, dt, limit, kind, parameter, save, out_x, out_v):
    """Velocity Verlet with fixed steps. Arguments as in :func:`kick_drift`."""
    nodes = m.shape[1] // W
    step, half = splat(dt), splat(0.5 * dt)
    for block in prange(x.shape[0]):
        X, V, F = x[block].copy(), v[block].copy(), np.zeros(x.shape[1])
        pairs, masses = w[block], m[block]
        _forces(X, F, pairs, masses, nodes, kind, parameter)
        done = 0
        for k in range(len(save)):
            for _ in range(save[k] - done):
                _kick(V, F, masses, nodes, half, limit)
                _drift(X, V, nodes, step)
                _forces(X, F, pairs, masses, nodes, kind, parameter)
                _kick(V, F, masses, nodes, half, limit)
            done = save[k]
            out_x[block, k] = X
            out_v[block, k] = V


@numba.njit(parallel=True, error_model="numpy", cache=True)
def adaptive(x, v, w, m, dt, limit, kind, parameter, save, out_x, out_v):
    """Yoshida's fourth-order scheme, with smaller steps in close encounters.

    A step is at most 10 dt, and at most 1/50 of 1/sqrt(|s| (1/m_i + 1/m_j)) for the stiffest pair,
    which near a charge is the time of falling into it. Every lane has its own step size, so that a
    trajectory does not depend on the others in its block. Arguments as in :func:`kick_drift`;
    `dt` is still the unit of `save`.
    """
    nodes = m.shape[1] // W
    for block in prange(x.shape[0]):
        X, V, F = x[block].copy(), v[block].copy(), np.zeros(x.shape[1])
        pairs, masses = w[block], m[block]
        stiffest = _forces(X, F, pairs, masses, nodes, kind, parameter)
        done = 0
        for k in range(len(save)):
            left = splat(dt * (save[k] - done))
            while largest(left) > 0.0:
                longest = rsqrt(maximum(stiffest, splat(1e-30))) * splat(0.02)
                longest = maximum(longest, splat(1e-10 * dt))  # to get through a collision
                longest = splat(0.0) - maximum(splat(0.0) - longest, splat(-10 * dt))
                # min(left, longest); exactly what is left at the end, then 0
                h = splat(0.0) - maximum(splat(0.0) - left, splat(0.0) - longest)
                for c in (_OUTER, _INNER, _OUTER):
                    _drift(X, V, nodes, h * splat(0.5 * c))
                    stiffest = _forces(X, F, pairs, masses, nodes, kind, parameter)
                    _kick(V, F, masses, nodes, h * splat(c), limit)
                    _drift(X, V, nodes, h * splat(0.5 * c))
                left = left - h
            done = save[k]
            out_x[block, k] = X
            out_v[block, k] = V


SCHEMES: dict[str, Any] = {"kick-drift": kick_drift, "verlet": verlet, "adaptive": adaptive}


@functools.lru_cache
def integrator(scheme: str, own_law: Callable[..., Any] | None = None) -> Any:
    """The compiled integrator; for a user-defined law, compiled anew in this process.

    Numba caches functions, but not functions that take functions: for another law, the same code
    is compiled again with a different ``law`` among its globals.
    """
    if own_law is None:
        return SCHEMES[scheme]
    compiled = numba.njit(inline="always")(own_law)

    @numba.njit(inline="always")
    def other(kind, r2, w, parameter):
        return compiled(r2, w, parameter)

    def rebuilt(function: Any, **names: Any) -> Any:
        python = function.py_func
        return types.FunctionType(python.__code__, python.__globals__ | names)

    forces = numba.njit(inline="always")(rebuilt(_forces, law=other))
    body = rebuilt(SCHEMES[scheme], _forces=forces)
    return numba.njit(parallel=True, error_model="numpy")(body)
