"""The LSTM baseline: the blocks of SET with a recurrent network in place of ETAL."""

import torch
from torch import Tensor, nn

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt, UnitInterval
from spacetime_en.geometry import NO_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.block import Block
from spacetime_en.nn.layers.egcl import EGNN
from spacetime_en.nn.layers.etal import AttentionMaps
from spacetime_en.nn.layers.feedforward import FeedForward
from spacetime_en.nn.models.base import BaseName, Corrector
from spacetime_en.nn.models.set import run_blocks
from spacetime_en.nn.requirements import check_dims, check_nodes, check_whole_frames, check_widths


class LSTMOverTime(nn.Module):
    """One LSTM over the frames; a token is (h, x, v) of all nodes, of width N(d + 2n).

    Args:
        nodes: number N of nodes.
        features: number d of node features.
        dims: space dimensions n.
    """

    def __init__(self, nodes: int, features: int, dims: int) -> None:
        super().__init__()
        width = nodes * (features + 2 * dims)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.split = (features, dims, dims)

    def forward(
        self, h: Tensor, x: Tensor, v: Tensor, window: Window, with_weights: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMaps]:
        """h: (B, L, N, d), x and v: (B, L, N, n) -> the same; there are no attention maps."""
        nodes = torch.cat([h, x, v], dim=-1)  # (B, L, N, d + 2n)
        tokens = nodes.flatten(2)
        if window.observed is None:
            tokens, _ = self.lstm(tokens)
        else:
            # Observed frames first, in order: an LSTM is causal, so the others cannot affect them.
            order = (~window.observed.any(2)).int().argsort(dim=1, stable=True)  # (B, L)
            sorted_tokens, _ = self.lstm(_take(tokens, order))
            tokens = _take(sorted_tokens, order.argsort(dim=1))
        h, x, v = tokens.view_as(nodes).split(self.split, dim=-1)
        return h, x, v, AttentionMaps()


def _take(tokens: Tensor, frames: Tensor) -> Tensor:
    """Reorder the frames, (B, L, c) by (B, L)."""
    return tokens.gather(1, frames.unsqueeze(-1).expand_as(tokens))


class LSTM(Corrector):
    """M blocks of EGNN and LSTM, then the mean over the frames. Tied to N and n.

    Args:
        nodes: number N of nodes.
        features: number d of node features.
        edge_features: number e of edge attributes.
        dims: space dimensions n.
        hidden: width of the messages and features inside a block.
        layers: number K of EGCLs per block.
        blocks: number M of blocks.
        dropout: on the features after the LSTM.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
        base: a simple forecast for the network to correct: ``straight-line``, ``last-frame``,
            ``parabola``, ``least-squares-line``, ``ridge``, or ``auto``, the best of these on
            validation windows; None: none.
        frames: number L of frames; used only by ridge as the base.
    """

    def __init__(
        self,
        nodes: PositiveInt,
        features: PositiveInt = 1,
        edge_features: Count = 1,
        dims: PositiveInt = 3,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 2,
        blocks: PositiveInt = 3,
        dropout: UnitInterval = 0.1,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
        base: BaseName | None = None,
        frames: PositiveInt = 10,
    ) -> None:
        super().__init__()
        channels = edge_features + 1
        self.blocks = nn.ModuleList(
            Block(
                EGNN(features, channels, hidden, layers, residual=False),
                LSTMOverTime(nodes, features, dims),
                adjacency=None,
                encodings="",
                dropout=dropout,
            )
            for _ in range(blocks)
        )
        self.feed_forward = FeedForward(features, channels, dims, equivariant=False)
        self._correct(base, frames, edge_features)

    @property
    def symmetries(self) -> Symmetries:
        return NO_SYMMETRY

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        c = self.settings
        check_widths(graph, c["features"], c["edge_features"])
        check_dims(graph, c["dims"])
        check_nodes(graph, c["nodes"])
        check_whole_frames(graph, "a token of the LSTM is a frame with all of its nodes")
        return run_blocks(graph, self.units(graph), self.blocks, self.feed_forward)[0]
