"""The physical systems that can be simulated: force laws and initial conditions.

A system of your own takes a few lines::

    from spacetime_en.data import System, simulate

    def start(rng, nodes, dims):                     # one trajectory: x, v (N, n), attributes
        return rng.standard_normal((nodes, dims)), np.zeros((nodes, dims)), {}

    def law(r2, w, parameter):                       # force on i from j: law * (x_i - x_j)
        return w * rsqrt(r2)                         # with the functions of ``simd``

    simulate(System("mine", start, law=law), num=100)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spacetime_en._util.errors import no_such
from spacetime_en.data.valid import Floats

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import Trajectories

INVERSE_SQUARE, SPRING = 0, 1  # the built-in laws
Attributes = dict[str, Floats]
InitialConditions = tuple[Floats, Floats, Attributes]  # x and v (N, n), attributes by name


def unit_couplings(attributes: Attributes, shape: tuple[int, int]) -> Floats:
    """w_ij = 1 for every pair, (num, N, N)."""
    num, nodes = shape
    return np.ones((num, nodes, nodes))


@dataclass(frozen=True)
class System:
    """Particles with central pair forces.

    Args:
        name: of the system.
        start: draws one trajectory, (generator, N, n) -> x, v (N, n) and attributes by name, each
            (N,) or (N, N).
        law: the factor s of the force s (x_i - x_j) on node i: the number of a built-in law, or a
            function (r2, w, parameter) written with :mod:`spacetime_en.data.simulation.simd`.
        coupling: (attributes, (num, N)) -> w_ij, (num, N, N), symmetric.
        potential: (r2, w, parameter) -> energy of a pair, for the drift report; None if unknown.
        parameter: third argument of `law` and `potential`.
        dt: the time step.
        max_force: each component of the net force on a node is clipped to this.
    """

    name: str
    start: Callable[[np.random.Generator, int, int], InitialConditions]
    law: int | Callable[..., Any]
    coupling: Callable[[Attributes, tuple[int, int]], Floats] = unit_couplings
    potential: Callable[[Floats, Floats, float], Floats] | None = None
    parameter: float = 0.0
    dt: float = 0.001
    max_force: float = np.inf


def _cloud(rng: np.random.Generator, nodes: int, dims: int, sigma: float) -> tuple[Floats, Floats]:
    """Positions N(0, sigma^2), speed 0.5 in a random direction."""
    x = sigma * rng.standard_normal((nodes, dims))
    v = rng.standard_normal((nodes, dims))
    return x, 0.5 * v / np.sqrt((v * v).sum(1, keepdims=True))


def _start_charged(rng: np.random.Generator, nodes: int, dims: int) -> InitialConditions:
    charge = rng.integers(0, 2, size=nodes).astype(np.float64) * 2 - 1
    return *_cloud(rng, nodes, dims, (nodes / 5) ** (1 / 3)), {"charge": charge}


def _start_gravity(rng: np.random.Generator, nodes: int, dims: int) -> InitialConditions:
    mass = rng.uniform(0.2, 1.0, size=nodes)
    x, v = _cloud(rng, nodes, dims, (nodes / 5) ** (1 / 3))
    # The total momentum is zero, so that the cloud stays where it is.
    return x, v - (mass[:, None] * v).sum(0) / mass.sum(), {"mass": mass}


def _start_springs(rng: np.random.Generator, nodes: int, dims: int) -> InitialConditions:
    upper = np.triu(rng.integers(0, 2, size=(nodes, nodes)), 1).astype(float)
    return *_cloud(rng, nodes, dims, 0.5), {"spring": upper + upper.T}


def _product(name: str, sign: float) -> Callable[[Attributes, tuple[int, int]], Floats]:
    def couplings(attributes: Attributes, shape: tuple[int, int]) -> Floats:
        value = attributes[name]
        return sign * value[:, :, None] * value[:, None, :]

    return couplings


SYSTEMS = {
    # The paper's: Coulomb force of strength 1 between charges +-1.
    "charged": System(
        "charged",
        _start_charged,
        INVERSE_SQUARE,
        _product("charge", 1.0),
        potential=lambda r2, w, soft: w / np.sqrt(r2 + soft),
        max_force=100.0,
    ),
    # Newton's gravity with G = 1, softened: -m_i m_j (x_i - x_j) / (r^2 + 0.1^2)^(3/2).
    "gravity": System(
        "gravity",
        _start_gravity,
        INVERSE_SQUARE,
        _product("mass", -1.0),
        potential=lambda r2, w, soft: w / np.sqrt(r2 + soft),
        parameter=0.1**2,
    ),
    # As in Neural Relational Inference: each pair has a spring of strength 0.1 or none.
    "springs": System(
        "springs",
        _start_springs,
        SPRING,
        lambda attributes, shape: -0.1 * attributes["spring"],
        potential=lambda r2, w, soft: -0.5 * w * r2,
    ),
}


def system_of(trajectories: Trajectories) -> System | None:
    """The system by which data were simulated, according to their ``meta``; None if unknown.

    If the data lack the attributes of that system, as those of an arbitrary file may, the claim is
    ignored.
    """
    system = SYSTEMS.get(trajectories.meta.get("system") or "")
    if system is None:
        return None
    _, _, needed = system.start(np.random.default_rng(0), *trajectories.x.shape[2:])
    held = {name: values.shape[1:] for name, values in trajectories.attributes.items()}
    return system if all(held.get(k) == v.shape for k, v in needed.items()) else None


def find_system(system: str | System) -> System:
    """The system of this name, or `system` itself."""
    if isinstance(system, System):
        return system
    if system not in SYSTEMS:
        raise no_such("system", system, SYSTEMS)
    return SYSTEMS[system]
