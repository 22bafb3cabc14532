"""A spatio-temporal block (Algorithm 1): space within each frame, then time for each node."""

import torch
from torch import Tensor, nn

from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.encoding import frame_index, sinusoid
from spacetime_en.nn.layers.etal import AttentionMaps
from spacetime_en.nn.layers.feedforward import FeedForward
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.state import State


def with_distances(state: State, neighbourhood: Neighbourhood) -> Tensor:
    """a = (A_ij, |x_i - x_j|^2), the map E of Algorithm 1: (B, L, N, K, e) -> (.., e + 1)."""
    square = neighbourhood.differences(state.x).square().sum(-1, keepdim=True)
    # (On edges that do not exist, the distance is 0, like every other attribute.)
    return torch.cat([state.a, square * neighbourhood.mask.unsqueeze(-1)], dim=-1)


class Block(nn.Module):
    """SpatiotempAttn of Algorithm 1.

    Args:
        egnn: the spatial part, from :func:`spatial_part`, or None.
        temporal: the temporal part, ``ETAL`` or ``LSTMOverTime``, or None.
        adjacency: attention over the edges, from :func:`edge_attention`, or None.
        encodings: the positional encodings to add, any of the letters ``"WXYZ"``.
        dropout: on the features, after attention. Never on positions and velocities, which would
            break rotation equivariance, or on their attention weights, which must sum to 1 for
            translation equivariance.
    """

    def __init__(
        self,
        egnn: nn.Module | None,
        temporal: nn.Module | None,
        adjacency: nn.Module | None,
        encodings: str,
        dropout: float,
    ) -> None:
        super().__init__()
        self.egnn = egnn
        self.temporal = temporal
        self.adjacency = adjacency
        self.encodings = encodings
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        state: State,
        feed_forward: FeedForward,
        neighbourhood: Neighbourhood,
        window: Window,
        with_weights: bool = False,
        up: Tensor | None = None,
    ) -> tuple[State, AttentionMaps]:
        """Map a state to the next.

        Args:
            state: with e edge channels.
            feed_forward: shared by all blocks, and therefore not part of this one.
            neighbourhood: the edges.
            window: the frames.
            with_weights: also return the attention maps.
            up: the up direction, (B, 1, 1, n), if the spatial part was built with `up`.
        """
        h, x, v, _ = state
        a = with_distances(state, neighbourhood)  # E(t), (B, L, N, K, e + 1)

        if self.egnn is not None:  # equivariant spatial attention, every frame
            h, x, v = self.egnn(h, x, v, a, neighbourhood, up)

        h, x, v, a = self._encode(State(h, x, v, a), window)

        maps = AttentionMaps()
        if self.temporal is not None:  # equivariant temporal attention, every node
            h, x, v, maps = self.temporal(h, x, v, window, with_weights)
        if self.adjacency is not None:
            a, pi = self.adjacency(a, window, neighbourhood.mask, with_weights)
            maps = maps._replace(edges=pi)
        h = self.dropout(h)

        h, x, v, a = feed_forward(State(h, x, v, a))
        # The next block recomputes the distance channel.
        return State(h, x, v, a[..., :-1]), maps

    def _encode(self, state: State, window: Window) -> State:
        """theta + W, xi + X, omega + Y, A + Z of Algorithm 1, as far as they are on."""
        if not self.encodings:
            return state
        h, x, v, a = state
        t = frame_index(window.frames, like=x)
        h, x, v = (
            s + sinusoid(t, s.shape[-1]).unsqueeze(2) if letter in self.encodings else s
            for letter, s in zip("WXY", (h, x, v), strict=True)
        )
        if "Z" in self.encodings:
            N = a.shape[2]
            z = sinusoid(t, N * N).unflatten(-1, (N, N)).unsqueeze(-1)  # (1 or B, L, N, N, 1)
            a = torch.cat([a[..., :-1] + z, a[..., -1:]], dim=-1)
        return State(h, x, v, a)
