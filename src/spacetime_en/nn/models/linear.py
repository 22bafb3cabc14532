"""Linear dynamics, with three learned parameters."""

import torch
from torch import nn

from spacetime_en.geometry import Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.state import last_state


class LinearDynamics(Forecaster):
    """x + alpha v and beta v + gamma, from the last frame, with three learned scalars.

    Adding gamma to every component of the velocity breaks rotation equivariance unless it is 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(1.0))
        self.beta = nn.Parameter(torch.tensor(1.0))
        self.gamma = nn.Parameter(torch.tensor(0.0))

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=True, rotation=False, permutation=True)

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, x, v = last_state(graph)
        x = x + graph.age.unsqueeze(-1) * v  # for nodes missing from the last frame
        x, v = x + self.alpha * v, self.beta * v + self.gamma
        return units.denormalize(graph, x, v)
