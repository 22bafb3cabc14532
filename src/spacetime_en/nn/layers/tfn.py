"""Tensor Field Network: messages are tensor products with spherical harmonics (Thomas et al. 2018).

f_i <- gate(W f_i + W' C sum_j R(s_ij) (f_j x Y(x_ij)))
"""

from torch import Tensor

from spacetime_en.nn.layers.steerable import SteerableEdges, SteerableLayer, SteerableNetwork


class TensorFieldLayer(SteerableLayer):
    """Messages are aggregated by their mean."""

    def collect(self, f: Tensor, edges: SteerableEdges) -> Tensor:
        """C times the sum of the messages over j, (B, L, N, message)."""
        messages: Tensor = self.value(f, edges)  # (B, L, N, K, message)
        there = edges.neighbourhood
        return there.normaliser * (messages * there.mask.unsqueeze(-1)).sum(3)


class TensorFieldNetwork(SteerableNetwork):
    """The spatial part; its arguments are those of :class:`SteerableNetwork`."""

    layer = TensorFieldLayer
