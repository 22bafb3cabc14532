"""A body: joints on a tree of bones, forecast bone by bone.

What a bone does next depends on how it rotates and on the pose of the whole body. Both are
described by invariants: dot products of the bone's own vectors, and of all bones with those at the
root. Small networks map these to the coefficients of vectors that are added to uniform motion.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt, UnitInterval
from spacetime_en.collation import collate
from spacetime_en.geometry import NAMED_NODES, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Example, Forecaster
from spacetime_en.nn.models.kernel import STEP_WEIGHT, Kernel
from spacetime_en.nn.models.tree import Joints, Tree
from spacetime_en.nn.requirements import check_frames, check_horizon, check_no_box, check_nodes
from spacetime_en.nn.rollout import first_step
from spacetime_en.nn.state import Units, require_up

ORDERS = 6  # of differences over time: velocity, acceleration, jerk, ...
FAMILY_ORDERS = 3  # of these for the parent bone and the child bone
TINY = 1e-6  # relative to the largest value of a kind


class Body(Forecaster):
    """Networks on the invariants of bones, and kernel regression on past motions.

    Args:
        nodes: number N of joints.
        frames: number L of frames, evenly spaced.
        parents: the tree of bones, see :class:`~spacetime_en.nn.models.tree.Tree`.
        hidden: width of the networks.
        context: number of principal components of the pose, read by all bones.
        dropout: on invariants and hidden features.
        mirrored: make the networks' forecasts commute with swapping left and right limbs. (Those of
            the kernel regression always do.)
        memory: weight of :class:`~spacetime_en.nn.models.kernel.Kernel` regression in the forecast.
            The networks are trained without it, because it reproduces the training windows.
        up: read the direction ``up`` of the graphs.
        dims: number n of space dimensions, for the kernel regression.
    """

    # Measured on data by `calibrate`, not learned.
    size: Tensor  # root mean square of the vectors of each bone, (N, local)
    reach: Tensor  # typical residual from uniform motion, (N,)
    mean: Tensor  # of the invariants, (N, invariants)
    spread: Tensor  # of the invariants, (N, invariants)
    pose: Tensor  # the mean pose
    principal: Tensor  # principal components of poses, as columns

    def __init__(
        self,
        nodes: Joints,
        frames: PositiveInt = 10,
        parents: list[int] | None = None,
        hidden: PositiveInt = 64,
        context: PositiveInt = 64,
        dropout: UnitInterval = 0.2,
        mirrored: bool = True,
        memory: UnitInterval = 0.5,
        up: bool = False,
        dims: PositiveInt = 3,
    ) -> None:
        super().__init__()
        if frames < 2:
            raise InputError("frames: a body needs at least two, to see how it moves.")
        tree = Tree(parents, nodes, mirrored)
        orders = min(ORDERS, frames - 1)
        few = min(FAMILY_ORDERS, orders)
        # As in _vectors: the bone's own, its parent's, its child's, the root's changes, up.
        local = (1 + orders) + (1 + few) + (1 + few) + few + up
        self.count = local + len(tree.at_root) + up  # vectors per bone
        invariants = local * (local + 1) // 2
        poses = nodes * (1 + orders) * (len(tree.at_root) + up)
        context = min(context, poses)
        self.tree, self.local, self.orders = tree, local, orders
        self.register_buffer("size", torch.ones(nodes, local))
        self.register_buffer("reach", torch.ones(nodes))
        self.register_buffer("mean", torch.zeros(nodes, invariants))
        self.register_buffer("spread", torch.ones(nodes, invariants))
        self.register_buffer("pose", torch.zeros(poses))
        self.register_buffer("principal", torch.eye(poses, context))
        self.bone = nn.Parameter(0.3 * torch.randn(nodes, hidden))
        self.inner = nn.Linear(invariants, hidden)
        self.around = nn.Sequential(
            nn.Linear(context, hidden), nn.SiLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden)
        )
        self.outer = nn.Linear(2 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)
        # Coefficients of each vector, for positions and for velocities; 0 before training.
        self.heads = nn.Linear(hidden, 2 * self.count)
        directions = len(tree.at_root) + up
        self.along = nn.Sequential(
            nn.Linear(context, 2 * hidden),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(2 * hidden, 2 * nodes * directions),
        )
        for last in (self.heads, self.along[3]):
            nn.init.zeros_(last.weight)  # type: ignore[arg-type]
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]

        self.memory = None
        if memory > 0:
            self.memory = Kernel(nodes, frames, dims, parents, up=up)
            self.memory.requires_grad_(False)

    @property
    def symmetries(self) -> Symmetries:
        return NAMED_NODES

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        if self.training or self.memory is None:
            return self._by_networks(graph)
        one, other, weight = self._by_networks(graph), self.memory(graph), self.settings["memory"]
        x, v = torch.lerp(one.x, other.x, weight), torch.lerp(one.v, other.v, weight)
        return one._replace(x=x, v=v)

    def _by_networks(self, graph: SpacetimeGraph) -> Forecast:
        """The forecast of the networks, averaged over both sides if mirrored."""
        if not (self.training and self.tree.has_sides):
            return self.tree.both_sides(self._forecast, graph)
        swap = self.tree.mirror  # in training, mirror a random half of the bodies instead
        coin = (torch.rand(len(graph), device=graph.x.device) < 0.5)[:, None, None, None]
        swapped = torch.where(coin, graph.x[:, :, swap], graph.x)
        forecast = self._forecast(graph._replace(x=swapped))
        x, v = (torch.where(coin, t[:, :, swap], t) for t in (forecast.x, forecast.v))
        return forecast._replace(x=x, v=v)

    def _forecast(self, graph: SpacetimeGraph) -> Forecast:
        units, path, ahead = self._paths(graph)
        place, changes = self._motion(path)
        local, directions = self._vectors(graph, path, place, changes)
        scaled = local / self.size.unsqueeze(-1)  # (B, N, local, n)
        theta = (self._invariants(scaled) - self.mean) / self.spread
        pose = (_pose(place, changes, directions) - self.pose) @ self.principal  # (B, context)

        h = F.silu(self.inner(self.dropout(theta)) + self.bone)  # (B, N, hidden)
        whole = self.around(self.dropout(pose)).unsqueeze(1).expand_as(h)
        h = self.dropout(F.silu(self.outer(torch.cat([h, whole], dim=-1))))
        c = self.heads(h).unflatten(-1, (2, self.count))  # coefficients, (B, N, 2, A)
        along = self.along(self.dropout(pose)).unflatten(-1, (h.shape[1], 2, -1))
        c = torch.cat([c[..., : self.local], c[..., self.local :] + along], dim=-1)

        every = directions.unsqueeze(1).expand(-1, h.shape[1], -1, -1)  # (B, N, D, n)
        vectors = torch.cat([scaled, every], dim=2)
        residual = self.reach[:, None, None] * torch.einsum("bnka,bnac->bnkc", c, vectors)
        move = ahead + residual[:, :, 0]
        speed = (ahead + residual[:, :, 1]) / graph.horizon[..., None]
        x, v = (self.tree.joints(t) for t in (path[:, -1] + move, speed))
        return units.denormalize(graph, x, v)

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Measure scales, means and principal poses, and fit the kernel regression."""
        train, val = first_step(*train), first_step(*val)
        if self.memory is not None:
            self.memory.solve([train], [val])
        graph, _ = train
        if self.tree.has_sides:
            graph = collate([graph, self.tree.mirrored(graph)])
        _, path, ahead = self._paths(graph)
        place, changes = self._motion(path)
        local, directions = self._vectors(graph, path, place, changes)
        size = local.square().mean((0, 3)).sqrt()
        size = size + TINY * size.amax(0)  # (the largest of the same vector over all bones)
        size = torch.where(size > 0, size, 1.0)
        last = path.diff(dim=1)[:, -1].square().mean().clamp(min=1e-30)  # (0 if nothing moves)
        ratio = (ahead.square().mean() / last).sqrt()
        order = min(2, self.orders)  # an acceleration, or with two frames the velocity
        theta = self._invariants(local / size.unsqueeze(-1))
        pose = _pose(place, changes, directions)
        measured = {
            "size": size,
            "reach": size[:, order] * ratio**order,  # acceleration times frames ahead squared
            "mean": theta.mean(0),
            "spread": theta.std(0, correction=0) + 1e-3,
            "pose": pose.mean(0),
            "principal": _principal(pose - pose.mean(0), self.principal.shape[1]),
        }
        for name, value in measured.items():
            self.get_buffer(name).copy_(value)

    # --- vectors and their invariants ------------------------------------------------------------

    def _paths(self, graph: SpacetimeGraph) -> tuple[Units, Tensor, Tensor]:
        """Units, bones over time, (B, L, N, n), and their displacements in uniform motion."""
        check_nodes(graph, self.settings["nodes"])
        check_frames(graph, self.settings["frames"])
        check_no_box(graph, "bones connect joints that are near")
        units = Units.of(graph, length=1.0, time=1.0, centred=True)
        path = self.tree.bones(units.normalize(graph).x)
        check_horizon(graph)
        last = (graph.times[:, -1] - graph.times[:, -2]).to(path.dtype)
        ahead = (graph.horizon[:, 0] / last)[:, None, None] * (path[:, -1] - path[:, -2])
        return units, path, ahead

    def _motion(self, path: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The bones in the last frame, and their time differences of all orders, (B, N, n) each."""
        changes, d = [], path
        for _ in range(self.orders):
            d = d.diff(dim=1)
            changes.append(d[:, -1])
        return self.tree.without_root(path[:, -1]), changes

    def _vectors(
        self, graph: SpacetimeGraph, path: Tensor, place: Tensor, changes: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Vectors of each bone and its relatives, (B, N, local, n), and directions, (B, D, n)."""
        few = changes[:FAMILY_ORDERS]
        vectors = [place, *changes]
        for relation in (self.tree.parents, self.tree.first_child):
            vectors += [t[:, relation] for t in (place, *few)]
        vectors += [t[:, :1].expand_as(t) for t in few]
        bones = path[:, -1, self.tree.at_root]
        directions = bones / bones.norm(dim=-1, keepdim=True).clamp(min=1e-30)
        if self.settings["up"]:
            up = require_up(graph).unsqueeze(1)
            vectors.append(up.expand_as(place))
            directions = torch.cat([directions, up], dim=1)
        return torch.stack(vectors, dim=2), directions

    def _invariants(self, vectors: Tensor) -> Tensor:
        """All dot products of a bone's vectors, compressed, (B, N, local (local + 1) / 2)."""
        first, second = torch.triu_indices(self.local, self.local, device=vectors.device)
        return torch.asinh((vectors[:, :, first] * vectors[:, :, second]).sum(-1))


def _pose(place: Tensor, changes: list[Tensor], directions: Tensor) -> Tensor:
    """Coordinates of all bones and their changes along the directions, (B, ...)."""
    parts = [place, *(STEP_WEIGHT * d for d in changes)]
    return torch.einsum("kbnc,bdc->bnkd", torch.stack(parts), directions).flatten(1)


def _principal(poses: Tensor, count: int) -> Tensor:
    """The first principal components of centred poses (B, P), as columns (P, count).

    They are scaled so that large components count more, but only by the square root of their size.
    """
    _, deviations, axes = torch.linalg.svd(poses, full_matrices=False)
    deviations = deviations[:count] / len(poses) ** 0.5
    deviations = deviations + TINY * deviations[0]
    scale = (deviations * deviations[0]).sqrt()
    columns = torch.where(scale > 0, axes[:count].mT / scale, 0.0)
    return F.pad(columns, (0, count - columns.shape[1]))
