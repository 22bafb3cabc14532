"""Lagrangian neural networks: a Lagrangian is learned, and its equations are integrated."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.nn.models.motion import StepFraction, Steps
from spacetime_en.nn.models.variational import Variational, kinetic_energies, of_pairs
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.mechanics import euler_lagrange

AT_FIRST = -4.0  # softplus of it, 0.018, is the joint mass of a pair before training


class Lagrangian(Variational):
    """L(x, v) = sum_i m_i |v_i|^2 / 2 + 1/2 sum_ij (mu_ij(x) |v_i - v_j|^2 / 2 - U_ij(x)).

    The potentials U_ij and the joint masses mu_ij >= 0 of pairs come from rounds of message passing
    whose inputs are the distances of all pairs. Accelerations solve (d^2 L/dv^2) a = dL/dx -
    (d^2 L/dv dx) v, for the N nodes of a window at once; since no mu_ij is negative, the mass
    matrix has no eigenvalue below the smallest m_i. Energy, momentum sum_i m_i v_i (in the sum of
    dL/dv_i the joint masses cancel) and the canonical angular momentum sum_i x_i ^ dL/dv_i are
    conserved, up to integration errors; sum_i m_i x_i ^ v_i alone is not, because the canonical one
    also contains 1/2 sum_ij mu_ij (x_i - x_j) ^ (v_i - v_j).

    It applies where a :class:`~spacetime_en.nn.models.hamiltonian.Hamiltonian` does. It cannot
    express forces with another dependence on velocities, such as that in a magnetic field.

    Args:
        edge_features: number e of edge attributes.
        node_features: number of node features, of which potentials and masses are functions; 0 for
            graphs without features, whose m_i are 1.
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
        super().__init__(invariants=1, outputs=2)

    def field(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        def lagrangian(x: Tensor, v: Tensor) -> Tensor:
            joint, potential = self._of_pairs(pairs, x, v)
            kinetic = kinetic_energies(pairs, v).sum(1)
            return kinetic + (of_pairs(pairs, joint - potential)).sum((1, 2))

        return v, euler_lagrange(lagrangian, x, v, self.inertia(pairs, x))

    def energies(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        joint, potential = self._of_pairs(pairs, x, v)
        return kinetic_energies(pairs, v), of_pairs(pairs, joint + potential)

    def inertia(self, pairs: Pairs, x: Tensor) -> Tensor:
        """The matrix d^2 L/dv^2, the same for each spatial component, (B, N, N)."""
        mu, _ = self._masses_and_potentials(pairs, x)
        B, _, N, K, _ = mu.shape
        mu = of_pairs(pairs, mu)
        j = pairs.neighbourhood.senders.view(B, N, K) % N
        joint = mu.new_zeros(B, N, N).scatter_add(2, j, mu)
        joint = joint + joint.mT
        own = joint.sum(2) + (1.0 if pairs.mass is None else pairs.mass.squeeze(-1))
        return torch.diag_embed(own) - joint

    def _of_pairs(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """mu_ij |v_i - v_j|^2 / 2 and U_ij, (B, 1, N, K, 1) each."""
        mu, potential = self._masses_and_potentials(pairs, x)
        return mu * pairs.velocity_differences(v).square().sum(-1, keepdim=True) / 2, potential

    def _masses_and_potentials(self, pairs: Pairs, x: Tensor) -> tuple[Tensor, Tensor]:
        """mu_ij and U_ij, (B, 1, N, K, 1) each."""
        _, r = pairs.differences(x)
        mu, u = self.scalars(pairs, torch.cat([r.log(), pairs.s], dim=-1)).split(1, dim=-1)
        return F.softplus(mu + AT_FIRST), u.sinh()
