"""The Spacetime E(n)-Transformer (Algorithm 2)."""

from torch import nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, Finite, PositiveFloat, PositiveInt, UnitInterval
from spacetime_en.geometry import Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.layers.adjacency import TIED_TO_NODES, AdjacencyForm, edge_attention
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.block import Block
from spacetime_en.nn.layers.etal import ETAL, AttentionMaps
from spacetime_en.nn.layers.feedforward import FeedForward
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.spatial import SpatialName, spatial_part
from spacetime_en.nn.layers.steerable import Degree
from spacetime_en.nn.models.base import BaseName, Corrector
from spacetime_en.nn.requirements import (
    check_complete,
    check_dims,
    check_no_padding,
    check_nodes,
    check_static,
    check_whole_frames,
    check_widths,
)
from spacetime_en.nn.state import Units, mean_over_time, with_up


class SET(Corrector):
    """M blocks of attention in space and time, then the mean over the frames.

    The defaults are the paper's. N, L and B are free, and so is n if the model is equivariant. Like
    all networks of the paper, it reads neither ``times`` nor ``horizon``: it learns the one horizon
    of its training targets. Data far from order one need ``length_scale`` and ``time_scale``.

    Args:
        features: number d of node features (1: the speed).
        edge_features: number e of edge attributes (1: c_i c_j).
        dims: space dimensions n; used only if not `equivariant`, when weights are n x n.
        nodes: number N of nodes; needed by all adjacency forms but ``"edges"``.
        hidden: width of the messages and features inside a block.
        layers: number K of EGCLs (or of the layers in their place) per block.
        blocks: number M of blocks.
        spatial: the spatial part: True or ``"egcl"``, the paper's EGCL; ``"tfn"`` or
            ``"se3-transformer"`` in its place (the extra ``e3nn``); False: none.
        temporal: whether to use temporal attention (ETAL).
        adjacency: attention over the edges: None, ``"flattened"``, ``"nodes"``, ``"edges"`` or
            ``"matrices"``.
        causal: frame t attends only to frames s <= t.
        encodings: positional encodings, any of the letters ``"WXYZ"``: W on features, X on
            positions, Y on velocities (both break rotation equivariance), Z on edges (breaks
            permutation equivariance).
        equivariant: False gives the paper's ablation, learned attention for x and v.
        residual: residual connections in every layer of the spatial part.
        scaled: divide attention logits by the square root of the width.
        step: the factor B of Eq. 7.
        dropout: on the features after attention.
        up: read the direction ``up`` of the graphs: height and rate of climb become features, and
            nodes may move along it.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
        base: a simple forecast for the network to correct: ``straight-line``, ``last-frame``,
            ``parabola``, ``least-squares-line``, ``ridge``, or ``auto``, the best of these on
            validation windows; None: none.
        frames: number L of frames; used only by ridge as the base.
        lmax: highest degree of the features of ``tfn`` and ``se3-transformer``, 1 or 2.
    """

    def __init__(
        self,
        features: PositiveInt = 1,
        edge_features: Count = 1,
        dims: PositiveInt = 3,
        nodes: PositiveInt | None = None,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 2,
        blocks: PositiveInt = 3,
        spatial: bool | SpatialName = True,
        temporal: bool = True,
        adjacency: AdjacencyForm | None = None,
        causal: bool = False,
        encodings: str = "",
        equivariant: bool = True,
        residual: bool = True,
        scaled: bool = True,
        step: Finite = 0.5,
        dropout: UnitInterval = 0.1,
        up: bool = False,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
        base: BaseName | None = None,
        frames: PositiveInt = 10,
        lmax: Degree = 1,
    ) -> None:
        super().__init__()
        if unknown := set(encodings) - set("WXYZ"):
            raise InputError(f"encodings: expected letters of 'WXYZ', found {sorted(unknown)}.")
        self.tied_to_nodes = adjacency in TIED_TO_NODES
        if self.tied_to_nodes and (nodes is None or nodes < 2):
            raise InputError(
                f"nodes: adjacency={adjacency!r} is tied to the number of nodes, at least 2; "
                f"pass nodes=N (found {nodes})."
            )
        channels = edge_features + 1  # with the squared distance
        width = features + 2 * up
        space: SpatialName = "egcl" if isinstance(spatial, bool) else spatial
        self.blocks = nn.ModuleList(
            Block(
                spatial_part(space, width, channels, hidden, layers, residual, up, lmax)
                if spatial
                else None,
                ETAL(width, dims, equivariant, scaled, step) if temporal else None,
                edge_attention(adjacency, nodes, channels, scaled) if adjacency else None,
                encodings,
                dropout,
            )
            for _ in range(blocks)
        )
        self.feed_forward = FeedForward(
            width, channels, dims, equivariant, norm_over_all_edges=adjacency == "nodes"
        )
        self._correct(base, frames, edge_features)

    @property
    def symmetries(self) -> Symmetries:
        c = self.settings
        # LN of a single coordinate is 0, so on a line the ablation's Linear only adds a constant.
        only_shifts = c["dims"] == 1 and not c["temporal"]
        # Edge attributes reach the forecast only through the EGNN of a later block.
        edges_matter = c["spatial"] and c["blocks"] > 1 and c["edge_features"] > 0
        indexed_edges = self.tied_to_nodes or "Z" in c["encodings"]
        return Symmetries(
            translation=c["equivariant"] or only_shifts,
            rotation=c["equivariant"] and not set("XY") & set(c["encodings"]),
            permutation=not (indexed_edges and edges_matter),
        )

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        return self._run(graph, with_weights=False)[0]

    def attention(self, graph: SpacetimeGraph) -> tuple[AttentionMaps, ...]:
        """The attention weights of every block for `graph`, in the order of the blocks."""
        self.check(graph)
        return self._run(graph, with_weights=True)[1]

    def _run(
        self, graph: SpacetimeGraph, with_weights: bool
    ) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
        c = self.settings
        check_widths(graph, c["features"], c["edge_features"])
        if not c["equivariant"]:
            check_dims(graph, c["dims"])
        if self.tied_to_nodes:
            check_nodes(graph, c["nodes"])
            check_whole_frames(graph, f"adjacency={c['adjacency']!r} reads the edges of all nodes")
            check_complete(graph, f"adjacency={c['adjacency']!r}")
        if "Z" in c["encodings"]:
            check_complete(graph, "the encoding Z")
            check_no_padding(graph, "the encoding Z counts all nodes")
        if c["adjacency"] == "edges":
            check_static(graph, "adjacency='edges'")
        return run_blocks(
            graph,
            self.units(graph),
            self.blocks,
            self.feed_forward,
            c["causal"],
            with_weights,
            c["up"],
        )


def run_blocks(
    graph: SpacetimeGraph,
    units: Units,
    blocks: nn.ModuleList,
    feed_forward: FeedForward,
    causal: bool = False,
    with_weights: bool = False,
    up: bool = False,
) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
    """Algorithm 2: the blocks in turn, then the mean over time, (B, L, N, n) -> (B, N, n)."""
    state, direction = units.normalize(graph), None
    if up:
        state, direction = with_up(state, graph)
    neighbourhood = Neighbourhood.of(graph, units.cell(graph))
    window = Window.of(state.x, graph.observed, causal)
    maps = []
    for block in blocks:
        state, block_maps = block(
            state, feed_forward, neighbourhood, window, with_weights, direction
        )
        maps.append(block_maps)
    x = mean_over_time(state.x, graph.observed)  # (B, N, n)
    v = mean_over_time(state.v, graph.observed)
    return units.denormalize(graph, x, v), tuple(maps)
