"""The drift of conserved quantities: energy, momentum, angular momentum."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.simulation.systems import Attributes, System
from spacetime_en.data.trajectories import Trajectories

States = tuple[NDArray[Any], NDArray[Any]]  # x and v, (num, N, n) each


def drift(system: System, trajectories: Trajectories) -> dict[str, NDArray[Any]]:
    """The change of each conserved quantity from the first to the last frame, (num,) each."""
    x, v = np.asarray(trajectories.x), np.asarray(trajectories.v)
    start, end = ((x[:, frame], v[:, frame]) for frame in (0, -1))
    return drift_between(system, start, end, trajectories.attributes)


def drift_between(
    system: System, start: States, end: States, attributes: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """The change of each conserved quantity between two states of systems.

    Energy is relative to the kinetic plus the absolute potential energy at the start. Momentum and
    angular momentum (about the centre of mass) are relative to the sums of their absolute values.

    Returns: for each quantity the relative change of every system, (num,).
    """
    arrays = {name: np.asarray(a) for name, a in attributes.items()}
    first, last = (_invariants(system, *states, arrays) for states in (start, end))
    report = {}
    for name, (value, scale) in first.items():
        change = np.abs(last[name][0] - value)
        change = change if change.ndim == 1 else np.linalg.norm(change, axis=-1)
        report[name] = change / np.maximum(scale, 1e-300)
    return report


def _invariants(
    system: System, x: NDArray[Any], v: NDArray[Any], attributes: Attributes
) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Each quantity, (num,) or (num, k), and the scale it is measured against, (num,)."""
    num, N, n = x.shape
    m = attributes.get("mass", np.ones((num, N)))
    momentum = m[..., None] * v
    report = {"momentum": (momentum.sum(1), np.linalg.norm(momentum, axis=-1).sum(1))}
    # The bivector y ^ m u about the centre of mass, in any number of dimensions.
    share = m[..., None] / m.sum(1)[:, None, None]
    y, u = (t - (share * t).sum(1, keepdims=True) for t in (x, v))
    i, j = np.triu_indices(n, 1)
    angular = m[..., None] * (y[..., i] * u[..., j] - y[..., j] * u[..., i])
    report["angular_momentum"] = (angular.sum(1), np.linalg.norm(angular, axis=-1).sum(1))
    if system.potential is not None:
        a, b = np.tril_indices(N, -1)
        r2 = np.square(x[:, a] - x[:, b]).sum(-1)
        w = system.coupling(attributes, (num, N))[:, a, b]
        pairs = system.potential(r2, w, system.parameter)
        kinetic = 0.5 * (m * np.square(v).sum(-1)).sum(1)
        report["energy"] = (kinetic + pairs.sum(1), kinetic + np.abs(pairs).sum(1))
    return report
