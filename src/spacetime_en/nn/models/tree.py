"""Bodies as trees of bones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
import torch
from torch import Tensor, nn

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import shortened
from spacetime_en.graph import Forecast, SpacetimeGraph

Joints = Annotated[int, msgspec.Meta(ge=1, le=4096)]  # every pair of which has a number


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
            raise InputError(
                f"parents: expected {nodes} numbers of joints, found {shortened(parents)}."
            )
        if self.parents[0] != 0:
            raise InputError("parents: expected joint 0 as the root, whose parent is itself.")
        self._below: list[list[int]] = [[] for _ in range(nodes)]
        for child, parent in enumerate(self.parents):
            if child != parent:
                self._below[parent].append(child)
        self.first_child = [below[0] if below else i for i, below in enumerate(self._below)]
        self.at_root = self._below[0] or [0]
        inner = torch.tensor([[float(p != i)] for i, p in enumerate(self.parents)])
        ways, depths = torch.zeros(nodes, nodes), [0] * nodes
        for joint in range(nodes):
            way = self._way(joint)
            ways[joint, way], depths[joint] = 1.0, len(way)
        self.register_buffer("inner", inner, persistent=False)
        self.register_buffer("ways", ways, persistent=False)
        self.mirror = list(range(nodes))
        if mirrored:
            shapes = self._shapes(depths)
            for joint in range(nodes):
                self._pair(joint, shapes)

    def _way(self, joint: int) -> list[int]:
        """The bones from the root to a joint, the root's place among them."""
        way = [joint]
        while self.parents[way[-1]] != way[-1]:
            way.append(self.parents[way[-1]])
            if len(way) > len(self.parents):
                raise InputError(f"parents: joint {joint} does not hang on a root.")
        return way

    def _shapes(self, depths: list[int]) -> list[int]:
        """What hangs on each joint: the same number for the same tree."""
        known: dict[tuple[int, ...], int] = {}
        shapes = [0] * len(self.parents)
        for joint in sorted(range(len(shapes)), key=lambda j: -depths[j]):  # leaves first
            below = tuple(sorted(shapes[child] for child in self._below[joint]))
            shapes[joint] = known.setdefault(below, len(known))
        return shapes

    def _pair(self, joint: int, shapes: list[int]) -> None:
        """Swap the two children of a joint that carry the same: the limbs of two sides."""
        below = self._below[joint]
        for place, one in enumerate(below):
            for other in below[place + 1 :]:
                if shapes[one] == shapes[other] and self.mirror[one] == one:
                    self._swap(one, other, shapes)

    def _swap(self, one: int, other: int, shapes: list[int]) -> None:
        pairs = [(one, other)]
        while pairs:
            one, other = pairs.pop()
            self.mirror[one], self.mirror[other] = other, one
            both = (sorted(self._below[j], key=shapes.__getitem__) for j in (one, other))
            pairs += zip(*both, strict=True)

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
