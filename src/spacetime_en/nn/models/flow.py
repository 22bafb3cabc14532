"""SET-Flow: the law of motion is learned, and integrated over any horizon.

The paper's model maps a window to one target time. Here the spatial layer is the acceleration of an
integrator instead: the horizon is an input, one pass gives forecasts at any number of times, and
the law of force between two nodes that is learned holds for any number of nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.nn.models.motion import LawOfMotion, StepFraction, Steps
from spacetime_en.nn.physics.force import PairForce, Pairs
from spacetime_en.nn.physics.leapfrog import Leapfrog


class Flow(LawOfMotion):
    """Leapfrog integration of a learned law of force, from the last frame to the horizon.

    Args:
        edge_features: number e of attributes of an edge.
        node_features: number of features of a node that forces may depend on, such as its mass;
            0 for graphs without features.
        hidden: width of the network that is the law of force.
        steps: the least number of steps to the horizon.
        step_fraction: the longest step, as a fraction of the shortest time in which two nodes
            could meet. Smaller is more accurate and slower; it may be changed after training.
            None: equal steps.
        length_scale: the length that the network sees as 1, see ``SpacetimeGraph.scales``.
        time_scale: the time that the network sees as 1.
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
        """For nodes of mass 1.

        None if forces depend on features of nodes: those of a pair need not be opposite then.
        """
        if self.settings["node_features"]:
            return None
        _, r = pairs.differences(x)
        counts = pairs.neighbourhood.mask.unsqueeze(-1)
        # (Places without a pair, such as the diagonal, have no distance.)
        potential = self.force.potential(torch.where(counts, r, 1.0), pairs.s) * counts
        kinetic = v.square().sum(-1) / 2  # (B, N)
        return kinetic, potential[:, 0, :, :, 0] / 2  # (each pair is there twice)
