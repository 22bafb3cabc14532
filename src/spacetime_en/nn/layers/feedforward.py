"""The residual Linears that end every block, one set shared by all blocks (Alg. 1, App. D)."""

from torch import Tensor, nn

from spacetime_en.nn.state import State


def layer_norm(t: Tensor, dims: tuple[int, ...] = (-1,), eps: float = 1e-5) -> Tensor:
    """Layer normalisation without affine parameters (App. D).

    Written out because the centring must come first: with a single channel the result is then
    exactly 0, where a fused kernel leaves rounding errors times 1/sqrt(eps).
    """
    centred = t - t.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


class FeedForward(nn.Module):
    """theta <- f_theta(LN(theta)) + theta, a <- f_A(LN(a)) + a.

    Positions and velocities are left unchanged: LN or a Linear would break their equivariance. The
    non-equivariant ablation still applies a Linear(n, n) to each.

    Args:
        features: number d of node features.
        edge_channels: number of channels of a, the distance channel included.
        dims: space dimensions n, used only if not `equivariant`.
        equivariant: leave x and v unchanged.
        norm_over_all_edges: LN of the edges over all N^2 entries of a channel, which App. D
            pairs with the adjacency form ``"nodes"``, instead of over the channels of an edge.
    """

    def __init__(
        self,
        features: int,
        edge_channels: int,
        dims: int,
        equivariant: bool,
        norm_over_all_edges: bool = False,
    ) -> None:
        super().__init__()
        self.f_theta = nn.Linear(features, features)
        self.f_a = nn.Linear(edge_channels, edge_channels)
        self.f_x = None if equivariant else nn.Linear(dims, dims)
        self.f_v = None if equivariant else nn.Linear(dims, dims)
        self.edge_dims = (-3, -2) if norm_over_all_edges else (-1,)

    def forward(self, state: State) -> State:
        """The state of all frames, with the distance channel in a, to the same shapes."""
        h, x, v, a = state
        h = self.f_theta(layer_norm(h)) + h
        a = self.f_a(layer_norm(a, self.edge_dims)) + a
        if self.f_x is not None and self.f_v is not None:
            x = self.f_x(layer_norm(x)) + x
            v = self.f_v(layer_norm(v)) + v
        return State(h, x, v, a)
