"""Laws of motion derived from one learned scalar, such as an energy."""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.models.motion import LawOfMotion
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.runge_kutta import RungeKutta
from spacetime_en.nn.physics.scalars import PairScalars


class Variational(LawOfMotion):
    """Runge-Kutta integration of a law that is derived from invariant scalars of pairs.

    Subclasses have the settings ``hidden`` and ``layers`` in addition to those of
    :class:`LawOfMotion`.
    """

    def __init__(self, invariants: int, outputs: int) -> None:
        super().__init__()
        c = self.settings
        features = c["edge_features"] + 2 * c["node_features"]
        self.scalars = PairScalars(invariants + features, c["hidden"], c["layers"], outputs)
        self.learn_masses(c["hidden"])

    def field(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """x' and v' of nodes at x with velocities v, (B, N, n) each."""
        raise NotImplementedError

    def scheme(self) -> RungeKutta:
        return RungeKutta(self.field)

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        if torch.compiler.is_exporting():
            raise InputError(
                "model: its forces are derivatives of a learned scalar, which torch.export cannot "
                "follow; hnn-pairs and set-flow can be exported."
            )
        if not torch.is_inference_mode_enabled():
            return super().forecast(graph)
        with torch.inference_mode(False), torch.no_grad():  # (inference tensors have no gradients)
            return super().forecast(graph._map(torch.clone))


def kinetic_energies(pairs: Pairs, v: Tensor) -> Tensor:
    """m |v|^2 / 2 of each node, (B, N, n) -> (B, N)."""
    mass = 1.0 if pairs.mass is None else pairs.mass.squeeze(-1)
    return mass * v.square().sum(-1) / 2


def of_pairs(pairs: Pairs, energies: Tensor) -> Tensor:
    """Half of each energy, as each pair appears twice, (B, 1, N, K, 1) -> (B, N, K)."""
    return (energies * pairs.neighbourhood.mask.unsqueeze(-1) / 2)[:, 0, :, :, 0]
