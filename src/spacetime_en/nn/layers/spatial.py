"""The spatial part of a model, which updates h, x and v within each frame, by name."""

from typing import Literal

from spacetime_en.nn.layers.egcl import EGNN
from spacetime_en.nn.layers.se3_transformer import SE3Transformer
from spacetime_en.nn.layers.steerable import Degree, SteerableNetwork
from spacetime_en.nn.layers.tfn import TensorFieldNetwork

SpatialName = Literal["egcl", "tfn", "se3-transformer"]
STEERABLE: dict[str, type[SteerableNetwork]] = {
    "tfn": TensorFieldNetwork,
    "se3-transformer": SE3Transformer,
}


def spatial_part(
    name: SpatialName,
    features: int,
    edge_channels: int,
    hidden: int,
    layers: int,
    residual: bool,
    up: bool,
    lmax: Degree,
) -> EGNN | SteerableNetwork:
    """Build a spatial part; for the other arguments see :class:`~spacetime_en.nn.layers.egcl.EGNN`.

    Args:
        name: of the spatial part.
        lmax: the highest degree of steerable features, ignored by ``egcl``.
    """
    if name == "egcl":
        return EGNN(features, edge_channels, hidden, layers, residual, up)
    return STEERABLE[name](features, edge_channels, hidden, layers, residual, up, lmax)
