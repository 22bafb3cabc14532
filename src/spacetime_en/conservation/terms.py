"""The dictionary: terms of a state that may add up to a conserved quantity.

Every term is a sum of parts, one for each node or one for each pair of nodes:

- scalars, invariant: w_i |v_i|^2 / 2 and w_i y_i . u_i of nodes, a_ij f(r_ij) of pairs, with f one
  of 1/r^2, 1/r, log r, r, r^2;
- vectors: w_i v_i, w_i |u_i|^2 u_i, w_i |y_i|^2 u_i, w_i (y_i . u_i) y_i;
- bivectors: w_i y_i ^ u_i, alone and times |u_i|^2 or |y_i|^2.

y and u are positions and velocities relative to the centre of mass (the centroid, if masses are not
known). Weights w of nodes are 1, their attributes, and the sums of the attributes of their pairs;
weights a of pairs are 1, their attributes, and products of attributes of their nodes. None of these
depends on coordinates: rotating, translating or permuting a system leaves scalars unchanged, and
rotates the others along with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from spacetime_en.conservation.paths import Paths

TermKind = Literal["scalar", "vector", "bivector"]
Parts = dict[str, Tensor]  # by the name of the term, (P, T, parts, c)
RADIAL: dict[str, Callable[[Tensor], Tensor]] = {
    "/ r²": lambda r: r**-2,
    "/ r": lambda r: 1 / r,
    "log r": torch.log,
    "r": lambda r: r,
    "r²": torch.square,
}
KINETIC = "|v|²/2"


def kinds_of(paths: Paths) -> tuple[TermKind, ...]:
    """The kinds of quantities that are defined: a box has no centre, and a line no rotations."""
    if paths.box is not None or paths.x.shape[-1] == 1:
        return "scalar", "vector"
    return "scalar", "vector", "bivector"


def wedge(x: Tensor, v: Tensor) -> Tensor:
    """The bivector x ^ v, with its n (n - 1) / 2 coordinates, (..., n) -> (..., c)."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], 1)
    return x[..., i] * v[..., j] - x[..., j] * v[..., i]


def term_parts(paths: Paths, kind: TermKind) -> tuple[Parts, Parts]:
    """The parts of all terms of a kind, those of nodes and those of pairs, by name."""
    nodes = {
        f"{name} {what}".strip(): w * part
        for what, part in _of_nodes(paths, kind)
        for name, w in _node_weights(paths).items()
    }
    if kind != "scalar":
        return nodes, {}
    r = paths.distances().unsqueeze(-1)  # (P, T, M, 1)
    weights = _pair_weights(paths)
    pairs = {
        f"{name} {what}".strip(): a * f(r) for what, f in RADIAL.items() for name, a in weights
    }
    return nodes, pairs


def _of_nodes(paths: Paths, kind: TermKind) -> Iterator[tuple[str, Tensor]]:
    """The contributions of nodes before weighting, (P, T, N, c)."""
    v = paths.v
    if kind == "scalar":
        yield KINETIC, v.square().sum(-1, keepdim=True) / 2
    elif kind == "vector":
        yield "v", v
    if paths.box is not None:
        return
    y, u = paths.centred()
    along, size, speed = ((a * b).sum(-1, keepdim=True) for a, b in ((y, u), (y, y), (u, u)))
    if kind == "scalar":
        yield "y·u", along
    elif kind == "vector":
        yield "|u|² u", speed * u
        yield "|y|² u", size * u
        yield "(y·u) y", along * y
    else:
        spin = wedge(y, u)
        yield "y∧u", spin
        yield "|u|² y∧u", speed * spin
        yield "|y|² y∧u", size * spin


def _node_weights(paths: Paths) -> dict[str, Tensor]:
    """Weights of nodes, by name, (P, 1, N, 1); 0 for nodes that do not count."""
    weights = {"": torch.ones_like(paths.mass), **paths.nodes}
    # (Within its component: the matrix has the others' pairs, too.)
    among = (paths.present[:, :, None] & paths.present[:, None]).double()
    weights |= {f"(Σ {name})": (a * among).sum(2) for name, a in paths.pairs.items()}
    return {name: (w * paths.present)[:, None, :, None] for name, w in weights.items()}


def _pair_weights(paths: Paths) -> list[tuple[str, Tensor]]:
    """Weights of pairs, by name, (P, 1, M, 1); 0 where a node does not count."""
    i, j = paths.pair_index()
    both = (paths.present[:, i] & paths.present[:, j]).double()
    weights = {"": both}
    weights |= {name: a[:, i, j] * both for name, a in paths.pairs.items()}
    weights |= {f"{k}_i {k}_j": w[:, i] * w[:, j] * both for k, w in paths.nodes.items()}
    return [(name, a[:, None, :, None]) for name, a in weights.items()]
