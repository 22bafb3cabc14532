"""One network applied to every node and frame, not equivariant to E(n)."""

import itertools

import torch
from torch import nn

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.geometry import Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.models.base import BaseName, Corrector
from spacetime_en.nn.requirements import check_dims
from spacetime_en.nn.state import mean_over_time


class MLP(Corrector):
    """An MLP on (x, v) of each node and frame, then the mean over the frames.

    Args:
        dims: space dimensions n.
        hidden: width of the hidden layers.
        layers: number of hidden layers.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
        base: a simple forecast for the network to correct: ``straight-line``, ``last-frame``,
            ``parabola``, ``least-squares-line``, ``ridge``, or ``auto``, the best of these on
            validation windows; None: none.
        frames: number L of frames; used only by ridge as the base.
        edge_features: number e of edge attributes; used only by ridge as the base.
    """

    def __init__(
        self,
        dims: PositiveInt = 3,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 5,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
        base: BaseName | None = None,
        frames: PositiveInt = 10,
        edge_features: Count = 1,
    ) -> None:
        super().__init__()
        widths = [2 * dims] + [hidden] * layers
        inside: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            inside += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*inside, nn.Linear(hidden, 2 * dims))
        self._correct(base, frames, edge_features)

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=False, rotation=False, permutation=True)

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        c = self.settings
        check_dims(graph, c["dims"])
        units = self.units(graph)
        state = units.normalize(graph)
        out = self.network(torch.cat([state.x, state.v], dim=-1))  # (B, L, N, 2n)
        x, v = mean_over_time(out, graph.observed).chunk(2, dim=-1)
        return units.denormalize(graph, x, v)
