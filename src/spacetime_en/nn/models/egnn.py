"""EGNN, or another spatial part, applied to every frame, then the mean over the frames."""

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.layers.block import with_distances
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.spatial import SpatialName, spatial_part
from spacetime_en.nn.layers.steerable import Degree
from spacetime_en.nn.models.base import BaseName, Corrector
from spacetime_en.nn.requirements import check_widths
from spacetime_en.nn.state import mean_over_time, with_up


class EGNNForecaster(Corrector):
    """A spatial part, by default EGNN, applied to every frame, then the mean over the frames.

    Args:
        features: number d of node features.
        edge_features: number e of edge attributes.
        hidden: width of the messages and hidden features.
        layers: number of EGCLs, or of the layers in their place.
        residual: residual connections in every layer.
        up: read the direction ``up`` of the graphs, as SET does.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
        base: a simple forecast for the network to correct: ``straight-line``, ``last-frame``,
            ``parabola``, ``least-squares-line``, ``ridge``, or ``auto``, the best of these on
            validation windows; None: none.
        frames: number L of frames; used only by ridge as the base.
        spatial: the spatial part: ``"egcl"``, ``"tfn"`` or ``"se3-transformer"`` (the last two need
            the extra ``e3nn``).
        lmax: highest degree of the features of ``tfn`` and ``se3-transformer``, 1 or 2.
    """

    def __init__(
        self,
        features: PositiveInt = 1,
        edge_features: Count = 1,
        hidden: PositiveInt = 64,
        layers: PositiveInt = 3,
        residual: bool = True,
        up: bool = False,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
        base: BaseName | None = None,
        frames: PositiveInt = 10,
        spatial: SpatialName = "egcl",
        lmax: Degree = 1,
    ) -> None:
        super().__init__()
        self.egnn = spatial_part(
            spatial, features + 2 * up, edge_features + 1, hidden, layers, residual, up, lmax
        )
        self._correct(base, frames, edge_features)

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        c = self.settings
        check_widths(graph, c["features"], c["edge_features"])
        units = self.units(graph)
        state, up = units.normalize(graph), None
        if c["up"]:
            state, up = with_up(state, graph)
        neighbourhood = Neighbourhood.of(graph, units.cell(graph))
        a = with_distances(state, neighbourhood)
        _, x, v = self.egnn(state.h, state.x, state.v, a, neighbourhood, up)
        x, v = (mean_over_time(t, graph.observed) for t in (x, v))
        return units.denormalize(graph, x, v)
