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

Joints = Annotated[int, msgspec.Meta(ge=1, le=4096)]  # memory grows with their square


class Tree(nn.Module):
    """A skeleton: the bone that leads to each joint, and the left-right symmetry of the limbs.

    Args:
        parents: the parent of every joint; the root, joint 0, is its own. None: there are no bones,
            every node is a root.
        nodes: number N of joints.
        mirrored: find limbs that occur in pairs and may be swapped; otherwise there are no sides.
    """

    inner: Tensor  # 1 for joints with a parent, 0 for roots, (N, 1)
    paths: Tensor  # 1 where a bone is on the path from the root to a joint, (joints, bones)

    def __init__(self, parents: Sequence[int] | None, nodes: int, mirrored: bool = True) -> None:
        super().__init__()
        self.parents = list(range(nodes)) if parents is None else [int(p) for p in parents]
        if len(self.parents) != nodes or not all(0 <= p < nodes for p in self.parents):
            raise InputError(
                f"parents: expected {nodes} numbers of joints, found {shortened(parents)}."
            )
        if self.parents[0] != 0:
            raise InputError("parents: expected joint 0 as the root, whose parent is itself.")
        self._children: list[list[int]] = [[] for _ in range(nodes)]
        for child, parent in enumerate(self.parents):
            if child != parent:
                self._children[parent].append(child)
        self.first_child = [below[0] if below else i for i, below in enumerate(self._children)]
        self.at_root = self._children[0] or [0]
        inner = torch.tensor([[float(p != i)] for i, p in enumerate(self.parents)])
        paths, depths = torch.zeros(nodes, nodes), [0] * nodes
        for joint in range(nodes):
            path = self._path(joint)
            paths[joint, path], depths[joint] = 1.0, len(path)
        self.register_buffer("inner", inner, persistent=False)
        self.register_buffer("paths", paths, persistent=False)
        self.mirror = list(range(nodes))
        if mirrored:
            shapes = self._shapes(depths)
            for joint in range(nodes):
                self._pair(joint, shapes)

    def _path(self, joint: int) -> list[int]:
        """The joints from `joint` up to its root."""
        path = [joint]
        while self.parents[path[-1]] != path[-1]:
            path.append(self.parents[path[-1]])
            if len(path) > len(self.parents):
                raise InputError(f"parents: joint {joint} does not hang on a root.")
        return path

    def _shapes(self, depths: list[int]) -> list[int]:
        """A number for the shape of each joint's subtree, equal for equal subtrees."""
        numbers: dict[tuple[int, ...], int] = {}
        shapes = [0] * len(self.parents)
        for joint in sorted(range(len(shapes)), key=lambda j: -depths[j]):  # leaves first
            children = tuple(sorted(shapes[child] for child in self._children[joint]))
            shapes[joint] = numbers.setdefault(children, len(numbers))
        return shapes

    def _pair(self, joint: int, shapes: list[int]) -> None:
        """Pair children of a joint with equal subtrees: a left and a right limb."""
        children = self._children[joint]
        for place, one in enumerate(children):
            for other in children[place + 1 :]:
                if shapes[one] == shapes[other] and self.mirror[one] == one:
                    self._swap(one, other, shapes)

    def _swap(self, one: int, other: int, shapes: list[int]) -> None:
        pairs = [(one, other)]
        while pairs:
            one, other = pairs.pop()
            self.mirror[one], self.mirror[other] = other, one
            both = (sorted(self._children[j], key=shapes.__getitem__) for j in (one, other))
            pairs += zip(*both, strict=True)

    @property
    def has_sides(self) -> bool:
        """Whether there are limbs that can be swapped."""
        return self.mirror != list(range(len(self.mirror)))

    def mirrored(self, graph: SpacetimeGraph) -> SpacetimeGraph:
        """The same bodies with left and right limbs swapped."""
        swap = self.mirror
        return graph._replace(x=graph.x[:, :, swap], v=graph.v[:, :, swap])

    def both_sides(
        self, model: Callable[[SpacetimeGraph], Forecast], graph: SpacetimeGraph
    ) -> Forecast:
        """A model's forecast, averaged over bodies and mirrored bodies if there are sides."""
        if not self.has_sides:
            return model(graph)
        one, other = model(graph), model(self.mirrored(graph)).permute(self.mirror)
        return one._replace(x=(one.x + other.x) / 2, v=(one.v + other.v) / 2)

    def bones(self, x: Tensor) -> Tensor:
        """Vectors from parent to joint, and the positions of roots, (..., N, n)."""
        return x - x[..., self.parents, :] * self.inner

    def without_root(self, bones: Tensor) -> Tensor:
        """The bones with zero for roots, whose position is not a direction."""
        return bones * self.inner

    def joints(self, bones: Tensor) -> Tensor:
        """The inverse of :meth:`bones`: sums along the paths from the root, (..., N, n)."""
        return torch.einsum("ji,...ic->...jc", self.paths, bones)


def parents_of(bones: Tensor) -> list[int] | None:
    """The parents in a skeleton with its root at joint 0; None if it is not such a tree.

    Args:
        bones: 1 for pairs of joints connected by a bone, else 0, (N, N).
    """
    N = len(bones)
    bones = bones * (1 - torch.eye(N).to(bones))
    if not (((bones == 0) | (bones == 1)).all() and (bones == bones.mT).all()):
        return None
    parents = list(range(N))
    visited, queue = {0}, [0]
    while queue:
        joint = queue.pop(0)
        for other in (bones[joint] > 0).nonzero().flatten().tolist():
            if other not in visited:
                visited.add(other)
                parents[other] = joint
                queue.append(other)
    return parents if len(visited) == N and int(bones.sum()) == 2 * (N - 1) else None
