"""A straightforward implementation of the model on an edge list, as a baseline for ours.

For every edge h_i, h_j, |x_i - x_j|^2 and a_ij are gathered and concatenated, an MLP computes the
message, and messages are scattered back; the position attention materialises all differences in
time. Same parameters, same forecasts (tests/test_yardstick.py).
"""

import copy

import torch
from torch import Tensor

from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.layers.attention import Window, logit_scale
from spacetime_en.nn.layers.egcl import EGCL, Embedding
from spacetime_en.nn.layers.etal import ETAL, AttentionMaps
from spacetime_en.nn.layers.neighbourhood import Neighbourhood


class EdgeListEGCL(EGCL):
    """Eq. 2 on a list of edges, for complete graphs without masks."""

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
        B, L, N, _ = h.shape
        i, j = edge_list(B * L, N, h.device)  # (E,)
        flat_h, flat_x, flat_v = (t.reshape(B * L * N, -1) for t in (h, x, v))
        a_ij = a.expand(B, L, N, N, -1).reshape(B * L * N * N, -1).index_select(0, i * N + j % N)

        # (index_select rather than h[i], whose gradient is slower.)
        x_ij = flat_x.index_select(0, i) - flat_x.index_select(0, j)
        square = x_ij.square().sum(-1, keepdim=True)
        h_i, h_j = flat_h.index_select(0, i), flat_h.index_select(0, j)
        m_ij = self.phi_e(torch.cat([h_i, h_j, square, a_ij], dim=-1))
        pull = torch.zeros_like(flat_x).index_add(0, i, x_ij * self.phi_x(m_ij))
        flat_v = self.phi_v(flat_h) * flat_v + pull / (N - 1)
        flat_x = flat_x + flat_v
        m_i = torch.zeros_like(flat_h).index_add(0, i, m_ij)
        update = self.phi_h(torch.cat([flat_h, m_i], dim=-1))
        flat_h = flat_h + update if self.residual else update
        return flat_h.view(h.shape), flat_x.view(x.shape), flat_v.view(v.shape)


class MaterialisedETAL(ETAL):
    """Eqs. 5-10 with all differences in time, (B, N, L, L, n)."""

    def forward(
        self, h: Tensor, x: Tensor, v: Tensor, window: Window, with_weights: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, AttentionMaps]:
        h, x, v = (t.transpose(1, 2) for t in (h, x, v))  # (B, N, L, c)
        scale = logit_scale(x.shape[-1], self.scaled)
        h, _ = self.features(h, window.visible, with_weights)
        x = materialised_position_attention(x, scale, self.step)
        gamma = (v @ v.mT * scale).softmax(-1)
        h, x, v = (t.transpose(1, 2) for t in (h, x, gamma @ v))
        return h, x, v, AttentionMaps()


def materialised_position_attention(x: Tensor, scale: float, step: float) -> Tensor:
    """Eqs. 7-8 as written, (B, N, L, n) -> the same."""
    differences = x.unsqueeze(2) - x.unsqueeze(3)  # (B, N, t, s, n): xi(s) - xi(t)
    beta = (differences.square().sum(-1) * scale).softmax(-1)
    return x + step * (beta.unsqueeze(-1) * differences).sum(3)


def yardstick(model: Forecaster) -> Forecaster:
    """The same model with the same weights, in the straightforward implementation."""
    reference = copy.deepcopy(model)
    for module in reference.modules():
        if isinstance(module, EGCL):
            module.__class__ = EdgeListEGCL
        elif isinstance(module, ETAL):
            module.__class__ = MaterialisedETAL
    return reference


_LISTS: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}


def edge_list(graphs: int, N: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Receivers i and senders j of all edges of `graphs` complete graphs, cached."""
    key = (graphs, N, device)
    if key not in _LISTS:
        with torch.inference_mode(False):  # they are also used in training
            i, j = (~torch.eye(N, dtype=torch.bool, device=device)).nonzero(as_tuple=True)
            first = N * torch.arange(graphs, device=device)[:, None]
            _LISTS[key] = (first + i).flatten(), (first + j).flatten()
    return _LISTS[key]
