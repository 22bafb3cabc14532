"""SET-Flow: the law of motion is learned, and integrated over any horizon.

The paper's model maps a window to one target time. Here the spatial layer gives the acceleration in
an integrator instead: the horizon is an input, one pass gives forecasts at any number of times, and
the learned force law between two nodes applies to any number of nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.nn.models.motion import LawOfMotion, StepFraction, Steps
from spacetime_en.nn.physics.force import PairForce, Pairs
from spacetime_en.nn.physics.leapfrog import Leapfrog


class Flow(LawOfMotion):
    """Leapfrog integration of a learned force law, from the last frame to the horizon.

    Args:
        edge_features: number e of edge attributes.
        node_features: number of node features that forces may depend on, such as masses; 0 for
            graphs without features.
        hidden: width of the network that gives the force.
        steps: the minimum number of steps to the horizon.
        step_fraction: the longest step, as a fraction of the shortest time in which two nodes
            could meet. Smaller is more accurate and slower; it may be changed after training.
            None: equal steps.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
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
        self.force = PairForce(edge_features + 2 * node_features, hidden)

    def scheme(self) -> Leapfrog:
        return Leapfrog(self.force)

    def energies(self, pairs: Pairs, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """The energies of nodes of mass 1.

        None if forces depend on node features: those of a pair need not be opposite then.
        """
        if self.settings["node_features"]:
            return None
        _, r = pairs.differences(x)
        counts = pairs.neighbourhood.mask.unsqueeze(-1)
        # (Entries that are no pairs, such as the diagonal, have no distance.)
        potential = self.force.potential(torch.where(counts, r, 1.0), pairs.s) * counts
        kinetic = v.square().sum(-1) / 2  # (B, N)
        return kinetic, potential[:, 0, :, :, 0] / 2  # (each pair appears twice)
