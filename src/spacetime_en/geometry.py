"""The groups that act on point clouds, and differentiable distances.

The symmetry group of a moving point cloud in R^n is E(n) x S_N: rotations and reflections
O(n), translations R^n, and permutations S_N of the nodes. This file draws random elements of
each group and computes differences; the actions on graphs and forecasts are the methods
``rotate``, ``translate`` and ``permute`` of :class:`~spacetime_en.graph.SpacetimeGraph` and
:class:`~spacetime_en.graph.Forecast`.
"""

from typing import NamedTuple

import torch
from torch import Tensor


def random_orthogonal(
    n: int, generator: torch.Generator | None = None, count: int | None = None
) -> Tensor:
    """Draw Q uniformly (Haar measure) from O(n): rotations and reflections alike.

    Args:
        count: number of independent draws; None: one, without a leading axis.
    Returns: (n, n) or (count, n, n), float64.
    """
    shape = (n, n) if count is None else (count, n, n)
    gaussian = torch.randn(shape, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # QR is unique only up to the signs of R's diagonal; fixing them makes Q Haar distributed.
    haar: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return haar


def random_rotation(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw Q uniformly from SO(n), det Q = +1. For n = 1 that is the identity.

    Returns: (n, n), float64.
    """
    q = random_orthogonal(n, generator)
    return q if torch.linalg.det(q) > 0 else _flip_first_axis(q)


def random_reflection(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw Q uniformly from O(n) with det Q = -1. For n = 1 that is minus the identity.

    Returns: (n, n), float64.
    """
    q = random_orthogonal(n, generator)
    return q if torch.linalg.det(q) < 0 else _flip_first_axis(q)


def _flip_first_axis(q: Tensor) -> Tensor:
    return torch.cat([-q[:, :1], q[:, 1:]], dim=1)


def random_translation(
    n: int, scale: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Draw b uniformly from the cube [-scale, scale]^n.

    Returns: (n,), float64.
    """
    return scale * (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)


def random_permutation(nodes: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw a permutation p of the nodes that is not the identity (for two nodes or more).

    Returns: (N,), int64; after the permutation, node i is the old node p[i].
    """
    p = torch.randperm(nodes, generator=generator)
    # The identity would make every permutation check pass: use a cyclic shift instead.
    return p.roll(1) if torch.equal(p, torch.arange(nodes)) else p


def _lattice_part(difference: Tensor, cell: Tensor) -> Tensor:
    """The integer combination of cell vectors nearest to each difference, (B, ..., n) -> same."""
    flat = difference.reshape(cell.shape[0], -1, cell.shape[-1])  # (B, ·, n)
    fractional = flat @ torch.linalg.inv(cell)
    return (torch.round(fractional).detach() @ cell).reshape(difference.shape)


def minimum_image(difference: Tensor, cell: Tensor | None) -> Tensor:
    """Replace each difference vector by its shortest periodic image.

    Exact for cells with right angles, however rotated; for skewed cells it is exact for
    vectors shorter than half the cell's smallest height, as in the usual MD packages.

    Args:
        difference: (B, ..., n) difference vectors.
        cell: (B, n, n), with the cell vectors as rows; None for open space.
    Returns: (B, ..., n).
    """
    return difference if cell is None else difference - _lattice_part(difference, cell)


def unwrap(x: Tensor, cell: Tensor | None) -> Tensor:
    """Undo jumps across the periodic boundary, so that each path is continuous in time.

    Args:
        x: (B, L, N, n) positions, wrapped into the cell or not.
        cell: (B, n, n) or None.
    Returns: (B, L, N, n); the first frame is unchanged.
    """
    if cell is None:
        return x
    jumps = _lattice_part(x[:, 1:] - x[:, :-1], cell)
    return torch.cat([x[:, :1], x[:, 1:] - jumps.cumsum(1)], dim=1)


def pairwise_differences(x: Tensor, cell: Tensor | None = None) -> Tensor:
    """All differences x_i - x_j, (B, ..., N, n) -> (B, ..., N, N, n)."""
    return minimum_image(x.unsqueeze(-2) - x.unsqueeze(-3), cell)


def norm(x: Tensor) -> Tensor:
    """Euclidean length over the last axis, (..., n) -> (...), with gradient 0 at x = 0."""
    square = x.square().sum(-1)
    zero = square == 0
    # sqrt has an infinite slope at 0, and 0 * inf = nan in the backward pass: keep away from it.
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())


class Symmetries(NamedTuple):
    """The group actions to which a model is equivariant, whatever its weights.

    Args:
        translation: x -> x + b translates the forecast and leaves its velocities unchanged.
        rotation: Q in O(n), reflections included, rotates the forecast's positions and velocities.
        permutation: relabelling nodes relabels the forecast.
    """

    translation: bool
    rotation: bool
    permutation: bool


FULL_SYMMETRY = Symmetries(translation=True, rotation=True, permutation=True)
NO_SYMMETRY = Symmetries(translation=False, rotation=False, permutation=False)
NAMED_NODES = FULL_SYMMETRY._replace(permutation=False)  # such as the joints of a body
