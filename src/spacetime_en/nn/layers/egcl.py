"""E(n)-equivariant graph convolution in space (Eqs. 2-4)."""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.layers.messages import (
    BACKWARD,
    CPU_CHUNK_BYTES,
    Weights,
    number_of_chunks,
    runs_eagerly,
    summed_messages,
)
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.pieces import by_pieces, even_cuts

CHUNKS_PER_PIECE = 4  # maximum number of chunks of messages in a piece of an EGNN


def mlp(inputs: int, hidden: int, outputs: int, bias: bool = True) -> nn.Sequential:
    """Linear-SiLU-Linear; `bias` refers to the last Linear."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs, bias=bias)
    )


def linear_at(phi: nn.Sequential, k: int) -> nn.Linear:
    """The k-th module of `phi`, which is a Linear."""
    return cast("nn.Linear", phi[k])


def is_unmodified(*layers: nn.Module) -> bool:
    """Whether layers are determined by their weights: no adapters, parametrisations or hooks."""
    return all(
        type(module) in (nn.Sequential, nn.Linear, nn.SiLU) and not has_hooks(module)
        for layer in layers
        for module in (layer, *layer.children())
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether forward or backward hooks are registered on a module."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for kind in kinds)


class Embedding(NamedTuple):
    """Features h = E theta + e that were embedded from a few features theta.

    Linears on h can then be narrow: W h + b = (W E) theta + (W e + b).

    Args:
        theta: (B, L, N, d).
        embed: E and e.
    """

    theta: Tensor
    embed: nn.Linear

    def fold(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """W E and W e + b."""
        return weight @ self.embed.weight, torch.addmv(bias, weight, self.embed.bias)


def convolve(
    phi_e: nn.Sequential,
    phi_x: nn.Sequential,
    phi_h: nn.Sequential | None,
    h: Tensor,
    s_ij: Tensor,
    x_ij: Tensor,
    neighbourhood: Neighbourhood,
    embedding: Embedding | None = None,
) -> tuple[Tensor, Tensor]:
    """sum_j x_ij phi_x(m_ij) and phi_h(h_i, sum_j m_ij), where m_ij = phi_e(h_i, h_j, s_ij).

    Args:
        phi_h: None if features are not updated; 0 is then returned instead.
        h: (B, L, N, width).
        s_ij: the scalars of an edge, (B, L, N, K, c).
        x_ij: (B, L, N, K, n).
        embedding: what h was embedded from, if it was.
    Returns: (B, L, N, n) and (B, L, N, width).
    """
    if not is_unmodified(phi_e, phi_x, *([] if phi_h is None else [phi_h])):
        h_i, h_j = h.unsqueeze(3).expand(*s_ij.shape[:4], -1), neighbourhood.gather(h)
        m_ij = phi_e(torch.cat([h_i, h_j, s_ij], dim=-1))  # (B, L, N, K, width)
        mask = neighbourhood.mask.unsqueeze(-1)
        pull = (x_ij * phi_x(m_ij) * mask).sum(3)
        if phi_h is None:
            return pull, torch.zeros_like(h)
        return pull, phi_h(torch.cat([h, (m_ij * mask).sum(3)], dim=-1))
    # Computed from the weights: an MLP of several arguments begins with a sum of Linears.
    in_e = linear_at(phi_e, 0)
    width = h.shape[-1]
    of_i, of_j, of_s = in_e.weight.split([width, width, in_e.in_features - 2 * width], dim=1)
    if embedding is None:
        p, q = F.linear(h, of_i, in_e.bias).flatten(0, 2), F.linear(h, of_j).flatten(0, 2)
    else:
        # theta_i and theta_j are appended to the few scalars of the edge.
        theta = embedding.theta
        theta_i = theta.unsqueeze(3).expand(*s_ij.shape[:4], -1)
        s_ij = torch.cat([theta_i, neighbourhood.gather(theta), s_ij], dim=-1)
        of_theta_i, bias = embedding.fold(of_i, in_e.bias)
        of_theta_j, bias = embedding.fold(of_j, bias)
        of_s = torch.cat([of_theta_i, of_theta_j, of_s], dim=1)
        p, q = bias.unsqueeze(0), bias.new_empty(0, width)
    w2, wx, u = linear_at(phi_e, 2), linear_at(phi_x, 0), linear_at(phi_x, 2)
    weights = Weights(of_s, w2.weight, w2.bias, wx.weight, wx.bias, u.weight)
    m_i, pull = summed_messages(p, q, neighbourhood.edges(s_ij, x_ij), weights)  # (BLN, ...)
    pull = pull.unflatten(0, h.shape[:3])
    if phi_h is None:
        return pull, torch.zeros_like(h)
    in_h = linear_at(phi_h, 0)
    of_h, of_m = in_h.weight.split([width, width], dim=1)
    if embedding is None:
        hidden = F.linear(h, of_h, in_h.bias)
    else:
        hidden = F.linear(embedding.theta, *embedding.fold(of_h, in_h.bias))
    hidden = hidden + F.linear(m_i.view_as(h), of_m)
    return pull, phi_h[2](F.silu(hidden))


class EGCL(nn.Module):
    """Equivariant graph convolutional layer (Eq. 2), with weights shared by all frames.

    Args:
        width: width of the node features h and the messages m.
        edge_channels: number of channels of the edge attributes a_ij.
        residual: add h_i to its update.
        up: let nodes also move along the up direction u, v_i <- ... + phi_u(h_i) u.
    """

    def __init__(
        self, width: int, edge_channels: int, residual: bool = True, up: bool = False
    ) -> None:
        super().__init__()
        self.residual = residual
        self.phi_e = nn.Sequential(*mlp(2 * width + 1 + edge_channels, width, width), nn.SiLU())
        self.phi_v = mlp(width, width, 1)
        self.phi_x = mlp(width, width, 1, bias=False)
        self.phi_h = mlp(2 * width, width, width)
        nn.init.xavier_uniform_(linear_at(self.phi_x, 2).weight, gain=0.001)
        self.phi_u = mlp(width, width, 1, bias=False) if up else None
        if self.phi_u is not None:
            nn.init.xavier_uniform_(linear_at(self.phi_u, 2).weight, gain=0.001)

    def forward(
        self,
        h: Tensor,
        x: Tensor,
        v: Tensor,
        a: Tensor,
        neighbourhood: Neighbourhood,
        embedding: Embedding | None = None,
        up: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Update features, positions and velocities.

        Args:
            h: (B, L, N, width).
            x, v: (B, L, N, n).
            a: (B, L, N, K, edge_channels).
            embedding: what h was embedded from, if it was.
            up: the direction u, (B, 1, 1, n), if the layer was built with `up`.
        Returns: h, x, v of the same shapes.
        """
        x_ij = neighbourhood.differences(x)  # (B, L, N, K, n)
        s_ij = torch.cat([x_ij.square().sum(-1, keepdim=True), a], dim=-1)
        pull, update = convolve(
            self.phi_e, self.phi_x, self.phi_h, h, s_ij, x_ij, neighbourhood, embedding
        )
        v = self._phi_v(h, embedding) * v + neighbourhood.normaliser * pull
        if self.phi_u is not None:
            assert up is not None
            v = v + self.phi_u(h) * up
        x = x + v
        return h + update if self.residual else update, x, v

    def _phi_v(self, h: Tensor, embedding: Embedding | None) -> Tensor:
        if embedding is None or not is_unmodified(self.phi_v):
            return cast("Tensor", self.phi_v(h))
        first, last = linear_at(self.phi_v, 0), linear_at(self.phi_v, 2)
        hidden = F.linear(embedding.theta, *embedding.fold(first.weight, first.bias))
        return F.linear(F.silu(hidden), last.weight, last.bias)


class EGNN(nn.Module):
    """K layers of EGCL between two Linears, with weights shared by all frames (Eq. 4).

    Args:
        features: number d of input and output node features.
        edge_channels: number of channels of the edge attributes a_ij.
        hidden: width of the hidden features and messages.
        layers: number K of EGCLs.
        residual: residual connections in each layer.
        up: whether there is an up direction.
    """

    def __init__(
        self,
        features: int,
        edge_channels: int,
        hidden: int,
        layers: int,
        residual: bool,
        up: bool = False,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.layers = nn.ModuleList(
            EGCL(hidden, edge_channels, residual, up) for _ in range(layers)
        )
        self.readout = nn.Linear(hidden, features)

    def forward(
        self,
        h: Tensor,
        x: Tensor,
        v: Tensor,
        a: Tensor,
        neighbourhood: Neighbourhood,
        up: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """h: (B, L, N, d), x and v: (B, L, N, n), a: (B, L, N, K, edge_channels)."""
        up_rows = () if up is None else (up,)
        cuts = self._cuts(x, neighbourhood)
        if len(cuts) == 1:
            return self._run_layers(neighbourhood, h, x, v, a, *up_rows)
        B, L = x.shape[:2]
        frames = neighbourhood.frames_as_graphs(L)
        rows = [
            t.expand(-1, L, *t.shape[2:]).flatten(0, 1).unsqueeze(1) for t in (h, x, v, a, *up_rows)
        ]

        def run(first: int, *piece: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            numbers = torch.arange(first, first + len(piece[0]), device=piece[0].device)
            return self._run_layers(frames.select(numbers), *piece)

        outputs = by_pieces(run, cuts, rows, tuple(self.parameters()))
        h, x, v = (t.view(B, L, *t.shape[2:]) for t in outputs)
        return h, x, v

    def _cuts(self, x: Tensor, neighbourhood: Neighbourhood) -> list[int]:
        """Where to cut the B L frames, which are independent, into pieces.

        All operators of a piece run on one thread: on a busy machine, operators that are split
        among threads wait for the slowest. Pieces have some overhead, so a single thread has none.
        """
        frames = x.shape[0] * x.shape[1]
        if (
            not (runs_eagerly() and self._is_unmodified())  # (the compiler traces no further)
            or x.device.type != "cpu"
            or torch.get_num_threads() == 1
            or (neighbourhood.cell is not None and neighbourhood.cell.requires_grad)
        ):
            return [frames]
        edges = int(neighbourhood.mask.sum()) * x.shape[1] // neighbourhood.mask.shape[1]
        size = edges * self.embed.out_features * x.element_size()
        chunks = number_of_chunks(size * BACKWARD, CPU_CHUNK_BYTES)
        # (Independent of the number of threads, so that sums over pieces have the same bits.)
        fours = -(-chunks // (4 * CHUNKS_PER_PIECE))
        count = min(chunks, 2) if fours == 1 else 4 * fours
        # If frames are larger than a piece, their messages are cut into chunks instead.
        return even_cuts(frames, count if count <= frames else 1)

    def _is_unmodified(self) -> bool:
        """Whether pieces may run on other threads: no hooks, no replaced layers."""
        parts = (phi for layer in self.layers for phi in layer.children())
        return (
            all(type(layer) is EGCL and not has_hooks(layer) for layer in self.layers)
            and is_unmodified(self.embed, self.readout, *parts)
            and not any(p._backward_hooks for p in self.parameters())
        )

    def _run_layers(
        self, neighbourhood: Neighbourhood, *rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        h, x, v, a, *up = rows
        # With few features (the paper has one), the products of the first layer can be narrow.
        narrow = is_unmodified(self.embed) and 4 * self.embed.in_features <= self.embed.out_features
        embedding = Embedding(h, self.embed) if narrow else None
        h = self.embed(h)
        for layer in self.layers:
            h, x, v = layer(h, x, v, a, neighbourhood, embedding, *up)
            embedding = None
        return self.readout(h), x, v
