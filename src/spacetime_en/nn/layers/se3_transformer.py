"""SE(3)-Transformer: invariant attention over equivariant messages (Fuchs et al. 2020).

    f_i <- gate(W f_i + W' sum_j alpha_ij v_ij),    alpha_ij = softmax_j (q_i . k_ij) / sqrt(c),

where the keys k_ij and values v_ij are tensor products R(s_ij) (f_j x Y(x_ij)), and the queries are
q_i = Q f_i. The dot product of two features of the same degree is invariant.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from spacetime_en.nn.layers.steerable import (
    Message,
    SteerableEdges,
    SteerableLayer,
    SteerableLinear,
    SteerableNetwork,
    irreps_of,
)

SE3_HEADS = 4  # channel c belongs to head c mod 4; each head has its own alpha


class SE3AttentionLayer(SteerableLayer):
    """Messages are aggregated with attention weights."""

    head: Tensor  # of each component of a message, (message,)

    def __init__(self, channels: int, lmax: int, scalars: int, residual: bool) -> None:
        super().__init__(channels, lmax, scalars, residual)
        self.key = Message(channels, lmax, scalars)
        self.query = SteerableLinear(irreps_of(channels, lmax), self.key.irreps)
        heads = [
            channel % SE3_HEADS
            for mul, degree in self.key.irreps
            for channel in range(mul)
            for _ in range(degree.dim)
        ]
        self.register_buffer("head", torch.tensor(heads), persistent=False)

    def collect(self, f: Tensor, edges: SteerableEdges) -> Tensor:
        """sum_j alpha_ij v_ij, (B, L, N, message)."""
        belongs = F.one_hot(self.head, SE3_HEADS).to(f.dtype)  # (message, heads)
        scale = belongs.sum(0).clamp(min=1).rsqrt()
        q_k = self.query(f).unsqueeze(3) * self.key(f, edges)
        logits = scale * (q_k @ belongs)  # (B, L, N, K, heads)
        mask = edges.neighbourhood.mask.unsqueeze(-1)
        # (A row may be empty: its softmax must be finite, and is masked afterwards.)
        alpha = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(3) * mask
        received: Tensor = alpha @ belongs.mT * self.value(f, edges)
        return received.sum(3)


class SE3Transformer(SteerableNetwork):
    """The spatial part; its arguments are those of :class:`SteerableNetwork`."""

    layer = SE3AttentionLayer
