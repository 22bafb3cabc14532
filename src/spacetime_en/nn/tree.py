"""Bodies as trees of bones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from spacetime_en.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph


class Tree(nn.Module):
    """Joints and bones: which bone leads to which joint, and what the two sides have twice.

    Args:
        parents: for every joint the one that its bone comes from; that of the root, joint 0, is
            itself. None: there are no bones, every node stands by itself.
        nodes: number N of joints.
        mirrored: what the two sides have twice may be swapped; otherwise there are no sides.
    """

    inner: Tensor  # 1 for joints that hang on another, 0 for roots, (N, 1)
    ways: Tensor  # 1 where a bone is on the way from the root to a joint, (joints, bones)

    def __init__(self, parents: Sequence[int] | None, nodes: int, mirrored: bool = True) -> None:
        super().__init__()
        self.parents = list(range(nodes)) if parents is None else [int(p) for p in parents]
        if len(self.parents) != nodes or not all(0 <= p < nodes for p in self.parents):
            raise InputError(f"parents: expected {nodes} numbers of joints, found {parents}.")
        if self.parents[0] != 0:
            raise InputError("parents: expected joint 0 as the root, whose parent is itself.")
        self.first_child = [
            next((c for c, p in enumerate(self.parents) if p == i and c != i), i)
            for i in range(nodes)
        ]
        self.at_root = [c for c, p in enumerate(self.parents) if p == 0 and c != 0] or [0]
        inner = torch.tensor([[float(p != i)] for i, p in enumerate(self.parents)])
        ways = torch.zeros(nodes, nodes)
        for joint in range(nodes):
            ways[joint, self._way(joint)] = 1.0
        self.register_buffer("inner", inner, persistent=False)
        self.register_buffer("ways", ways, persistent=False)
        self.mirror = list(range(nodes))
        for joint in range(nodes) if mirrored else ():
            self._pair(joint)

    def _way(self, joint: int) -> list[int]:
        """The bones from the root to a joint, the root's place among them."""
        way = [joint]
        while self.parents[way[-1]] != way[-1]:
            way.append(self.parents[way[-1]])
            if len(way) > len(self.parents):
                raise InputError(f"parents: joint {joint} does not hang on a root.")
        return way

    def _below(self, joint: int) -> list[int]:
        return [c for c, p in enumerate(self.parents) if p == joint and c != joint]

    def _shape(self, joint: int) -> str:
        """What hangs on a joint, the same text for the same tree."""
        return f"({''.join(sorted(self._shape(c) for c in self._below(joint)))})"

    def _pair(self, joint: int) -> None:
        """Swap the two children of a joint that carry the same: the limbs of two sides."""
        below = self._below(joint)
        for place, one in enumerate(below):
            for other in below[place + 1 :]:
                if self._shape(one) == self._shape(other) and self.mirror[one] == one:
                    self._swap(one, other)

    def _swap(self, one: int, other: int) -> None:
        self.mirror[one], self.mirror[other] = other, one
        pairs = (sorted(self._below(j), key=self._shape) for j in (one, other))
        for a, b in zip(*pairs, strict=True):
            self._swap(a, b)

    @property
    def has_sides(self) -> bool:
        """Whether there is anything to mirror."""
        return self.mirror != list(range(len(self.mirror)))

    def mirrored(self, graph: SpacetimeGraph) -> SpacetimeGraph:
        """Bodies whose left limbs move as the right ones did, and the other way round."""
        swap = self.mirror
        return graph._replace(x=graph.x[:, :, swap], v=graph.v[:, :, swap])

    def both_sides(
        self, model: Callable[[SpacetimeGraph], Forecast], graph: SpacetimeGraph
    ) -> Forecast:
        """The mean of a model's forecasts for bodies and, if there are sides, mirrored ones."""
        if not self.has_sides:
            return model(graph)
        here, there = model(graph), model(self.mirrored(graph)).permute(self.mirror)
        return Forecast((here.x + there.x) / 2, (here.v + there.v) / 2)

    def bones(self, x: Tensor) -> Tensor:
        """Vectors from parent to joint; roots stay where they are, (..., N, n)."""
        return x - x[..., self.parents, :] * self.inner

    def without_root(self, bones: Tensor) -> Tensor:
        """The same with zero for roots, whose place is no direction."""
        return bones * self.inner

    def joints(self, bones: Tensor) -> Tensor:
        """The way back: sums along the ways from the root, (..., N, n)."""
        return torch.einsum("ji,...ic->...jc", self.ways, bones)


def parents_of(bones: Tensor) -> list[int] | None:
    """The tree of a skeleton with its root at joint 0; None: there is no such tree.

    Args:
        bones: 1 for pairs of joints that a bone connects, 0 for others, (N, N).
    """
    N = len(bones)
    bones = bones * (1 - torch.eye(N).to(bones))
    if not (((bones == 0) | (bones == 1)).all() and (bones == bones.mT).all()):
        return None
    parents = list(range(N))
    known, border = {0}, [0]
    while border:
        here = border.pop(0)
        for other in (bones[here] > 0).nonzero().flatten().tolist():
            if other not in known:
                known.add(other)
                parents[other] = here
                border.append(other)
    return parents if len(known) == N and int(bones.sum()) == 2 * (N - 1) else None
