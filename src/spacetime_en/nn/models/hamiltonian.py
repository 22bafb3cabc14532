"""Hamiltonian neural networks: an energy is learned, and its equations of motion are integrated."""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.nn.models.motion import LawOfMotion, StepFraction, Steps
from spacetime_en.nn.models.variational import Variational, kinetic_energies, of_pairs
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.leapfrog import Leapfrog
from spacetime_en.nn.physics.mechanics import hamilton
from spacetime_en.nn.physics.potential import PairPotential


class PairHamiltonian(LawOfMotion):
    """H = sum_i |p_i|^2 / 2 m_i + 1/2 sum_ij U(r_ij, a_ij): kinetic energy and pair potentials.

    It assumes what :class:`~spacetime_en.nn.models.flow.Flow` does, and that there is an energy:
    momentum, angular momentum and energy are conserved for all weights, even if attributes are not
    symmetric or masses differ. The arguments are those of ``Flow``; masses are learned functions of
    the node features, and 1 if there are none.
    """

    def __init__(
        self,
        edge_features: Count = 1,
        node_features: Count = 0,
        hidden: PositiveInt = 32,
        steps: Steps = 16,
        step_fraction: StepFraction | None = 0.1,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.force = PairPotential(edge_features + 2 * node_features, hidden)
        self.learn_masses(hidden)

    def scheme(self) -> Leapfrog:
        return Leapfrog(self.force)

    def energies(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        _, r = pairs.differences(x)
        return kinetic_energies(pairs, v), of_pairs(pairs, self.force.potential(r, pairs.s))


class Hamiltonian(Variational):
    """H(q, p) = sum_i |p_i|^2 / 2 m_i + 1/2 sum_ij sinh u_ij(q, p), with q = x and p = m v.

    As in the first Hamiltonian networks, p = m v is assumed, with v the observed velocity, and
    forecasts have v = p/m. As u_ij depends on p, dq/dt = dH/dp is not p/m for all weights: that the
    velocities of a forecast are the derivatives of its path is learned, not built in.

    The scalars u_ij come from rounds of message passing whose inputs are the distances and relative
    velocities p_i/m_i - p_j/m_j of all pairs: a many-body energy that is not separable into
    functions of x and of p. It is invariant under translations, rotations, reflections and
    permutations, so that energy, momentum and angular momentum are conserved, up to integration
    errors.

    It applies to closed systems, observed without noise, whose velocities are known and whose
    momenta are mass times velocity. It does not apply to friction, driving forces, external fields
    (`up`), walls, charged particles in a magnetic field, or people.

    Args:
        edge_features: number e of edge attributes.
        node_features: number of node features, of which energies and masses are functions; 0 for
            graphs without features, whose masses are 1.
        hidden: width of the network.
        layers: number of rounds of message passing.
        steps, step_fraction, length_scale, time_scale: as in
            :class:`~spacetime_en.nn.models.flow.Flow`.
    """

    def __init__(
        self,
        edge_features: Count = 1,
        node_features: Count = 0,
        hidden: PositiveInt = 32,
        layers: PositiveInt = 1,
        steps: Steps = 4,
        step_fraction: StepFraction | None = 0.3,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(invariants=3, outputs=1)

    def field(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        def energy(x: Tensor, v: Tensor) -> Tensor:
            return torch.cat([t.flatten(1) for t in self.energies(pairs, x, v)], dim=1).sum(1)

        return hamilton(energy, x, v, 1.0 if pairs.mass is None else pairs.mass)

    def energies(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        x_ij, r = pairs.differences(x)
        v_ij = pairs.velocity_differences(v)
        radial = (x_ij * v_ij).sum(-1, keepdim=True) / r
        square = v_ij.square().sum(-1, keepdim=True)
        s = torch.cat([r.log(), radial.asinh(), square.log1p(), pairs.s], dim=-1)
        return kinetic_energies(pairs, v), of_pairs(pairs, self.scalars(pairs, s).sinh())
