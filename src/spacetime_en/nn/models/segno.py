"""A second-order graph network: EGNN's accelerations in an integrator, in the style of SEGNO."""

from __future__ import annotations

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.nn.models.motion import LawOfMotion, StepFraction, Steps
from spacetime_en.nn.physics.graph_force import GraphForce
from spacetime_en.nn.physics.leapfrog import Leapfrog


class SecondOrder(LawOfMotion):
    """x'' = a(x), with accelerations from graph convolutions, over any horizon.

    As in SEGNO (Liu et al., 2024), a second-order network is integrated in several steps with the
    same weights. It assumes neither pair forces nor an energy.

    Args:
        edge_features: number e of edge attributes.
        node_features: number of node features that forces may depend on.
        hidden: width of the graph convolutions.
        layers: number of graph convolutions per step.
        steps, step_fraction, length_scale, time_scale: as in
            :class:`~spacetime_en.nn.models.flow.Flow`.
    """

    def __init__(
        self,
        edge_features: Count = 1,
        node_features: Count = 0,
        hidden: PositiveInt = 64,
        layers: PositiveInt = 2,
        steps: Steps = 8,
        step_fraction: StepFraction | None = 0.2,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.force = GraphForce(edge_features + 2 * node_features, hidden, layers)

    def scheme(self) -> Leapfrog:
        return Leapfrog(self.force)
