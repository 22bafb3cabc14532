"""E(n)-equivariant graph convolution in space (Eqs. 2-4)."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en.nn.neighbourhood import Neighbourhood


def mlp(inputs: int, hidden: int, outputs: int, bias: bool = True) -> nn.Sequential:
    """Linear-SiLU-Linear; `bias` is that of the last Linear."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs, bias=bias)
    )


class EGCL(nn.Module):
    """Equivariant graph convolutional layer (Eq. 2), on every frame with the same weights.

    Args:
        width: that of the node features h and the messages m.
        edge_channels: number of channels of the edge attributes a_ij.
        residual: add h_i to its update.
    """

    def __init__(self, width: int, edge_channels: int, residual: bool = True) -> None:
        super().__init__()
        self.width = width
        self.residual = residual
        self.phi_e = nn.Sequential(*mlp(2 * width + 1 + edge_channels, width, width), nn.SiLU())
        self.phi_v = mlp(width, width, 1)
        self.phi_x = mlp(width, width, 1, bias=False)
        self.phi_h = mlp(2 * width, width, width)
        nn.init.xavier_uniform_(cast("nn.Linear", self.phi_x[-1]).weight, gain=0.001)

    def forward(
        self, h: Tensor, x: Tensor, v: Tensor, a: Tensor, neighbourhood: Neighbourhood
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Update features, positions and velocities.

        Args:
            h: (B, L, N, width).
            x, v: (B, L, N, n).
            a: (B, L, N, K, edge_channels).
        Returns: h, x, v of the same shapes.
        """
        x_ij = neighbourhood.differences(x)  # (B, L, N, K, n)
        m_ij = self._messages(h, x_ij.square().sum(-1, keepdim=True), a, neighbourhood)
        pull = neighbourhood.sum(x_ij * self.phi_x(m_ij))  # (B, L, N, n)
        v = self.phi_v(h) * v + neighbourhood.normaliser * pull
        x = x + v
        m_i = neighbourhood.sum(m_ij)  # (B, L, N, width)
        update = self.phi_h(torch.cat([h, m_i], dim=-1))
        return h + update if self.residual else update, x, v

    def _messages(
        self, h: Tensor, square: Tensor, a: Tensor, neighbourhood: Neighbourhood
    ) -> Tensor:
        """m_ij = phi_e(h_i, h_j, |x_i - x_j|^2, a_ij), (B, L, N, K, width).

        phi_e begins with a Linear, so its weight is cut into the columns of h_i, of h_j and of
        the edge: the wide products then run once a node instead of once an edge.
        """
        first = cast("nn.Linear", self.phi_e[0])
        of_i, of_j, of_edge = first.weight.split(
            [self.width, self.width, first.in_features - 2 * self.width], dim=1
        )
        edge = F.linear(torch.cat([square, a], dim=-1), of_edge, first.bias)
        of_nodes = F.linear(h, of_i).unsqueeze(3) + neighbourhood.gather(F.linear(h, of_j))
        m: Tensor = self.phi_e[1:](edge + of_nodes)
        return m


class EGNN(nn.Module):
    """K layers of EGCL between two Linears, on every frame with the same weights (Eq. 4).

    Args:
        features: width d of the node features outside.
        edge_channels: number of channels of the edge attributes a_ij.
        hidden: the width inside.
        layers: number K of EGCLs.
        residual: in each layer.
    """

    def __init__(
        self, features: int, edge_channels: int, hidden: int, layers: int, residual: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.layers = nn.ModuleList(EGCL(hidden, edge_channels, residual) for _ in range(layers))
        self.readout = nn.Linear(hidden, features)

    def forward(
        self, h: Tensor, x: Tensor, v: Tensor, a: Tensor, neighbourhood: Neighbourhood
    ) -> tuple[Tensor, Tensor, Tensor]:
        """h: (B, L, N, d), x and v: (B, L, N, n), a: (B, L, N, K, edge_channels)."""
        h = self.embed(h)
        for layer in self.layers:
            h, x, v = layer(h, x, v, a, neighbourhood)
        return self.readout(h), x, v
