"""Steerable features: scalars, vectors and tensors, by e3nn (the extra ``e3nn``).

A node has the same number of channels of each degree l = 0 ... lmax. A feature of degree l has
2l + 1 components, which transform into each other under rotations; inversion multiplies them by
(-1)^l, as it does spherical harmonics. In e3nn's notation they are c x 0e + c x 1o + c x 2e.

What e3nn compiles for given sizes holds no weights and is shared by all layers. The weights are
parameters of the modules here, so that saved models do not depend on e3nn's internals.
"""

from __future__ import annotations

import functools
import itertools
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError, require
from spacetime_en.nn.layers.egcl import linear_at, mlp
from spacetime_en.nn.layers.neighbourhood import Neighbourhood

Degree = Literal[1, 2]
SOFTENING = 0.1  # below this distance directions fade out: messages are smooth where nodes meet
SMALL_START = 0.01  # scale of the initial readout: nodes hardly move before training
RADIAL_WIDTH = 32  # of the networks that map an edge's scalars to weights


# --- what e3nn compiles ---------------------------------------------------------------------------


def e3nn_part(name: str) -> Any:
    """A module of e3nn, such as ``o3``."""
    require("e3nn", "e3nn")
    return import_module(f"e3nn.{name}")


def irreps_of(channels: int, lmax: int) -> Any:
    """c x 0e + c x 1o + ..., the irreps of a node's features."""
    return e3nn_part("o3").Irreps(
        [(channels, (degree, (-1) ** degree)) for degree in range(lmax + 1)]
    )


def paths_of(lmax: int) -> list[tuple[int, int, int]]:
    """All (l, l1, l2) for which a feature of degree l1 times a harmonic of l2 has a part of l."""
    triples = itertools.product(range(lmax + 1), repeat=3)
    return [
        (degree, l1, l2)
        for degree, l1, l2 in triples
        if abs(l1 - l2) <= degree <= l1 + l2 and (degree + l1 + l2) % 2 == 0  # (parity)
    ]


@functools.lru_cache(maxsize=64)
def tensor_product(channels: int, lmax: int, dtype: torch.dtype, device: torch.device) -> Any:
    """The tensor products of features and harmonics, with a weight for each path and channel."""
    o3 = e3nn_part("o3")
    default = torch.get_default_dtype()
    # (Clebsch-Gordan coefficients in single precision would not be exact enough for double.)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("cpu"):
            product = o3.TensorProduct(
                irreps_of(channels, lmax),
                o3.Irreps.spherical_harmonics(lmax),
                o3.Irreps([(channels, (degree, (-1) ** degree)) for degree, *_ in paths_of(lmax)]),
                [(l1, l2, k, "uvu", True) for k, (_, l1, l2) in enumerate(paths_of(lmax))],
                internal_weights=False,
                shared_weights=False,
            )
    finally:
        torch.set_default_dtype(default)
    return product.to(device=device, dtype=dtype)


@functools.lru_cache(maxsize=64)
def linear_map(inputs: Any, outputs: Any) -> Any:
    """The general equivariant linear map between features, with a bias for scalars."""
    with torch.device("cpu"):
        return e3nn_part("o3").Linear(inputs, outputs, internal_weights=False, biases=True)


@functools.lru_cache(maxsize=64)
def gate(channels: int, lmax: int) -> Any:
    """SiLU of the scalars; each other feature is multiplied by the sigmoid of an extra scalar."""
    irreps = irreps_of(channels, lmax)
    with torch.device("cpu"):
        return e3nn_part("nn").Gate(
            irreps[:1], [nn.SiLU()], f"{channels * lmax}x0e", [nn.Sigmoid()], irreps[1:]
        )


# --- modules --------------------------------------------------------------------------------------


class SteerableLinear(nn.Module):
    """A linear map that mixes features of the same degree.

    Args:
        inputs, outputs: irreps.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        super().__init__()
        irreps = e3nn_part("o3").Irreps
        inputs, outputs = irreps(inputs).simplify(), irreps(outputs).simplify()
        of_degree = {degree: mul for mul, degree in inputs}
        # (Weights are created before e3nn is called, so that `loading.build` can bound their size.)
        self.weight = nn.Parameter(
            torch.randn(sum(mul * of_degree.get(degree, 0) for mul, degree in outputs))
        )
        self.bias = nn.Parameter(torch.zeros(outputs.count("0e")))
        self._map = (linear_map(inputs, outputs),)  # (no submodule)

    def forward(self, f: Tensor) -> Tensor:
        mapped: Tensor = self._map[0](f, self.weight, self.bias)
        return mapped


class SteerableEdges(NamedTuple):
    """What messages read of the edges.

    Args:
        y: spherical harmonics of their directions, (B, L, N, K, (lmax + 1)^2).
        s: their scalars, (B, L, N, K, c).
        neighbourhood: the nodes that they connect.
    """

    y: Tensor
    s: Tensor
    neighbourhood: Neighbourhood


class Message(nn.Module):
    """R(s_ij) (f_j x Y(x_ij)): tensor products, weighted by functions of the edge's scalars.

    Args:
        channels: number of channels of each degree.
        lmax: the highest degree.
        scalars: number of scalars per edge.
    """

    def __init__(self, channels: int, lmax: int, scalars: int) -> None:
        super().__init__()
        self.sizes = channels, lmax
        self.radial = mlp(scalars, RADIAL_WIDTH, len(paths_of(lmax)) * channels)
        self._choose_product()
        self.register_load_state_dict_post_hook(_choose_again)  # type: ignore[no-untyped-call]

    @property
    def irreps(self) -> Any:
        """The irreps of a message, ordered by path, then by channel."""
        return self._product[0].irreps_out

    def forward(self, f: Tensor, edges: SteerableEdges) -> Tensor:
        """The messages of all edges, (B, L, N, features) -> (B, L, N, K, message)."""
        f_j = edges.neighbourhood.senders_of(f)
        message: Tensor = self._product[0](f_j, edges.y, self.radial(edges.s))
        return message

    def _choose_product(self) -> None:
        like = linear_at(self.radial, 0).weight
        self._product = (tensor_product(*self.sizes, like.dtype, like.device),)  # (no submodule)

    def _apply(self, fn: Any, recurse: bool = True) -> Message:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._choose_product()
        return self


def _choose_again(message: nn.Module, _: object) -> None:
    """Follow the dtype of loaded weights."""
    assert isinstance(message, Message)
    message._choose_product()


class SteerableLayer(nn.Module):
    """f_i <- gate(W f_i + W' sum_j ...), plus f_i if residual.

    Args:
        channels: number of channels of each degree.
        lmax: the highest degree.
        scalars: number of scalars per edge.
        residual: add f_i to its update.
    """

    def __init__(self, channels: int, lmax: int, scalars: int, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.value = Message(channels, lmax, scalars)
        self._gate = (gate(channels, lmax),)  # (no submodule)
        inner = self._gate[0].irreps_in
        self.itself = SteerableLinear(irreps_of(channels, lmax), inner)
        self.mix = SteerableLinear(self.value.irreps, inner)

    def collect(self, f: Tensor, edges: SteerableEdges) -> Tensor:
        """The aggregated messages of each node, (B, L, N, message)."""
        raise NotImplementedError(f"{type(self).__name__}: implement `collect`.")

    def forward(self, f: Tensor, edges: SteerableEdges) -> Tensor:
        """(B, L, N, features) -> (B, L, N, features)."""
        update: Tensor = self._gate[0](self.itself(f) + self.mix(self.collect(f, edges)))
        return f + update if self.residual else update


class SteerableNetwork(nn.Module):
    """Layers on steerable features, with weights shared by all frames; subclasses set ``layer``.

    Velocities (and the direction `up`) enter as vectors. Two vectors read out from the last layer
    are added to positions and velocities. Inputs and outputs are those of
    :class:`~spacetime_en.nn.layers.egcl.EGNN`, in three dimensions.

    Args:
        features: number d of input and output node features.
        edge_channels: number of channels of the edge attributes a_ij.
        hidden: width of the hidden features, with hidden // (lmax + 1)^2 channels of each degree.
        layers: number of layers.
        residual: residual connections in each layer.
        up: whether there is an up direction.
        lmax: the highest degree.
    """

    layer: ClassVar[type[SteerableLayer]]

    def __init__(
        self,
        features: int,
        edge_channels: int,
        hidden: int,
        layers: int,
        residual: bool,
        up: bool = False,
        lmax: Degree = 1,
    ) -> None:
        super().__init__()
        channels = max(1, hidden // (lmax + 1) ** 2)
        self.features = features
        self.layers = nn.ModuleList(
            self.layer(channels, lmax, 1 + edge_channels, residual) for _ in range(layers)
        )
        inner = irreps_of(channels, lmax)
        self.embed = SteerableLinear(f"{features}x0e + {1 + up}x1o", inner)
        self.readout = SteerableLinear(inner, f"{features}x0e + 2x1o")
        with torch.no_grad():
            self.readout.weight.mul_(SMALL_START)
        self.harmonics = e3nn_part("o3").SphericalHarmonics(
            list(range(lmax + 1)), normalize=False, normalization="component"
        )

    def forward(
        self,
        h: Tensor,
        x: Tensor,
        v: Tensor,
        a: Tensor,
        neighbourhood: Neighbourhood,
        up: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """h: (B, L, N, d), x and v: (B, L, N, 3), a: (B, L, N, K, edge_channels)."""
        n = x.shape[-1]
        if n != 3:
            raise InputError(
                f"x: spherical harmonics need n = 3 space dimensions, the graph has {n}; take "
                "another spatial part, such as egcl (the models egnn and set)."
            )
        x_ij = neighbourhood.differences(x)  # (B, L, N, K, 3)
        r = (x_ij.square().sum(-1, keepdim=True) + SOFTENING**2).sqrt()
        s = torch.asinh(torch.cat([r, a], dim=-1))  # (squared distances may be huge)
        edges = SteerableEdges(self.harmonics(x_ij / r), s, neighbourhood)
        vectors = [v] if up is None else [v, up.expand_as(v)]
        f = self.embed(torch.cat([h, *vectors], dim=-1))
        for layer in self.layers:
            f = layer(f, edges)
        h, dx, dv = self.readout(f).split([self.features, 3, 3], dim=-1)
        return h, x + dx, v + dv
