"""ESTAG (Wu et al. 2023), implemented from its paper: the model closest to SET.

The Fourier spectra of the nodes' paths show which of them move together; spatial and causal
temporal modules alternate; the forecast is a learned weighted sum over time instead of a mean.
"""

import math

import torch
from torch import Tensor, nn

from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.layers.egcl import convolve, linear_at, mlp
from spacetime_en.nn.layers.etal import AttentionMaps
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.models.base import BaseName, Corrector
from spacetime_en.nn.requirements import (
    check_frames,
    check_no_box,
    check_no_padding,
    check_static,
    check_widths,
)


class FourierFeatures(nn.Module):
    """The equivariant discrete Fourier transform over time, and its invariants.

    f_i(k) = sum_t exp(-2 pi i k t / L) (x_i(t) - centroid(t)) rotates with the data, while
    c_i(k) = w_k(h_i) |f_i(k)|^2 and A_ij(k) = w_k(h_i) w_k(h_j) |<f_i(k), f_j(k)>| are invariant.

    Args:
        frames: number L of frames.
        width: width of the node features.
    """

    def __init__(self, frames: int, width: int) -> None:
        super().__init__()
        self.count = frames // 2 + 1  # the other frequencies are complex conjugates of these
        angle = 2 * math.pi / frames * torch.outer(torch.arange(self.count), torch.arange(frames))
        # (Divided by L, so that more frames do not mean larger features.)
        waves = torch.stack([angle.cos(), -angle.sin()]) / frames
        self.register_buffer("waves", waves, persistent=False)
        self.w = nn.Linear(width, self.count)

    def forward(self, h: Tensor, x: Tensor, neighbourhood: Neighbourhood) -> tuple[Tensor, Tensor]:
        """h: (B, L, N, width), x: (B, L, N, n) -> c (B, 1, N, F), A (B, 1, N, K, F)."""
        path = x - x.mean(2, keepdim=True)
        waves = self.get_buffer("waves")
        re, im = torch.einsum("ckl,blnx->cbnkx", waves, path)  # each (B, N, F, n)
        w = self.w(h.mean(1))  # (B, N, F)
        square = (re.square() + im.square()).sum(-1)
        # <f_i, f_j> of complex vectors, for all edges.
        flat = torch.cat([re, im, w.unsqueeze(-1)], dim=-1).flatten(2)  # (B, N, F (2n + 1))
        other = _of_neighbours(flat, neighbourhood, x.shape[1]).unflatten(-1, (self.count, -1))
        n = x.shape[-1]
        re_j, im_j, w_j = other.split([n, n, 1], dim=-1)  # (B, N, K, F, ...)
        re_i, im_i = re.unsqueeze(2), im.unsqueeze(2)
        real = (re_i * re_j + im_i * im_j).sum(-1)
        imaginary = (im_i * re_j - re_i * im_j).sum(-1)
        # (Smooth at 0, where a plain modulus has no gradient.)
        modulus = (real.square() + imaginary.square() + 1e-12).sqrt()
        a = w.unsqueeze(2) * w_j.squeeze(-1) * modulus
        return (w * square).unsqueeze(1), a.unsqueeze(1)


def _of_neighbours(h: Tensor, neighbourhood: Neighbourhood, frames: int) -> Tensor:
    """h_j, (B, N, c) -> (B, N, K, c); all frames have the same edges."""
    if neighbourhood.complete:
        return h.unsqueeze(1).expand(-1, h.shape[1], -1, -1)
    return neighbourhood.gather(h.unsqueeze(1).expand(-1, frames, -1, -1))[:, -1]


class SpatialModule(nn.Module):
    """Message passing within each frame, with the frequencies that two nodes share.

    Args:
        width: width of features and messages.
        edge_channels: number of channels of the edge attributes, frequencies included.
    """

    def __init__(self, width: int, edge_channels: int) -> None:
        super().__init__()
        self.phi_m = nn.Sequential(*mlp(2 * width + 1 + edge_channels, width, width), nn.SiLU())
        self.phi_x = mlp(width, width, 1, bias=False)
        self.phi_h = mlp(2 * width, width, width)
        nn.init.xavier_uniform_(linear_at(self.phi_x, 2).weight, gain=0.001)

    def forward(
        self, h: Tensor, x: Tensor, a: Tensor, neighbourhood: Neighbourhood
    ) -> tuple[Tensor, Tensor]:
        """h: (B, L, N, width), x: (B, L, N, n), a: (B, L, N, K, edge_channels)."""
        x_ij = neighbourhood.differences(x)
        s = torch.cat([x_ij.square().sum(-1, keepdim=True), a], dim=-1)
        pull, update = convolve(self.phi_m, self.phi_x, self.phi_h, h, s, x_ij, neighbourhood)
        return h + update, x + neighbourhood.normaliser * pull


class TemporalModule(nn.Module):
    """Causal attention of each node to its own past, for features and positions alike.

    Args:
        width: width of the features.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.phi_x = mlp(width, width, 1, bias=False)
        nn.init.xavier_uniform_(linear_at(self.phi_x, 2).weight, gain=0.001)

    def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h: (B, L, N, width), x: (B, L, N, n); also returns the weights (B, N, L, L)."""
        q, k, v = self.qkv(h.transpose(1, 2)).chunk(3, dim=-1)  # (B, N, L, width)
        L = q.shape[2]
        past = torch.ones(L, L, dtype=torch.bool, device=h.device).tril()
        logits = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~past, -torch.inf)
        alpha = logits.softmax(-1)
        # sum_s alpha(t, s) phi_x(v(s)) (x(t) - x(s)), as a product with one matrix
        weights = alpha * self.phi_x(v).mT  # (B, N, L, L)
        y = x.transpose(1, 2)
        moved = y * weights.sum(-1, keepdim=True) - weights @ y
        return h + (alpha @ v).transpose(1, 2), x + moved.transpose(1, 2), alpha


class ESTAG(Corrector):
    """Equivariant spatio-temporal attentive graph network.

    Unlike in the paper, velocities are forecast as well, Fourier sums are divided by L, and the
    modulus in A_ij is smooth at 0.

    Args:
        features: number d of node features.
        edge_features: number e of edge attributes.
        frames: number L of frames.
        hidden: width of the hidden features.
        blocks: number of blocks, each a spatial and a temporal module.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
        base: a simple forecast for the network to correct: ``straight-line``, ``last-frame``,
            ``parabola``, ``least-squares-line``, ``ridge``, or ``auto``, the best of these on
            validation windows; None: none.
    """

    def __init__(
        self,
        features: PositiveInt = 1,
        edge_features: Count = 1,
        frames: PositiveInt = 10,
        hidden: PositiveInt = 64,
        blocks: PositiveInt = 2,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
        base: BaseName | None = None,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.fourier = FourierFeatures(frames, hidden)
        self.join = nn.Linear(hidden + self.fourier.count, hidden)
        channels = edge_features + self.fourier.count
        self.space = nn.ModuleList(SpatialModule(hidden, channels) for _ in range(blocks))
        self.time = nn.ModuleList(TemporalModule(hidden) for _ in range(blocks))
        # Equivariant pooling over time, for positions and (not in the paper) velocities.
        self.pool_x = nn.Parameter(torch.zeros(frames))
        self.pool_v = nn.Parameter(torch.zeros(frames))
        self.keep_v = nn.Parameter(torch.ones(()))
        self._correct(base, frames, edge_features)

    @property
    def symmetries(self) -> Symmetries:
        return FULL_SYMMETRY

    def alone(self, graph: SpacetimeGraph) -> Forecast:
        return self._run(graph)[0]

    def attention(self, graph: SpacetimeGraph) -> tuple[AttentionMaps, ...]:
        """The attention weights of every block for `graph`, in the order of the blocks."""
        self.check(graph)
        return self._run(graph)[1]

    def _run(self, graph: SpacetimeGraph) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
        c = self.settings
        check_widths(graph, c["features"], c["edge_features"])
        check_no_padding(graph, "ESTAG takes means over all nodes")
        check_no_box(graph, "ESTAG looks at paths about the centroid")
        check_static(graph, "ESTAG")
        check_frames(graph, c["frames"])
        units = self.units(graph)
        state = units.normalize(graph)
        neighbourhood = Neighbourhood.of(graph, units.cell(graph))
        h, x = self.embed(state.h), state.x
        frequencies, shared = self.fourier(h, x, neighbourhood)
        h = self.join(torch.cat([h, frequencies.expand(*h.shape[:3], -1)], dim=-1))
        a = torch.cat([state.a, shared.expand(*state.a.shape[:4], -1)], dim=-1)
        maps = []
        for space, time in zip(self.space, self.time, strict=True):
            h, x = space(h, x, a, neighbourhood)
            h, x, alpha = time(h, x)
            maps.append(AttentionMaps(features=alpha, positions=alpha))
        # x(T) = x(last) + sum_t w_t (x~(t) - x(last)), with the observed x(last)
        last_x, last_v = state.x[:, -1], state.v[:, -1]
        past = x - last_x.unsqueeze(1)
        moved, changed = (torch.einsum("l,blnx->bnx", w, past) for w in (self.pool_x, self.pool_v))
        return units.denormalize(graph, last_x + moved, self.keep_v * last_v + changed), tuple(maps)
