"""States of systems along paths, with the attributes that conserved quantities may depend on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.data.graphs import attribute_names
from spacetime_en.data.windows import Windows
from spacetime_en.geometry import minimum_image
from spacetime_en.graph import SpacetimeGraph, speeds

MOST_PATHS, MOST_PAIRS = 1_000, 1 << 23  # to read: seconds of work
MASS = "mass"


@dataclass(frozen=True)
class Paths:
    """P paths of T states of N nodes, in double precision.

    Args:
        x, v: positions and velocities, (P, T, N, n); meaningless where a node does not count.
        present: the nodes that count, (P, N).
        nodes: attributes of nodes, by name, (P, N).
        pairs: attributes of pairs of nodes, by name, symmetric, (P, N, N).
        box: periodic cell, (P, n, n); None: open space.
    """

    x: Tensor
    v: Tensor
    present: Tensor
    nodes: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, Tensor] = field(default_factory=dict)
    box: Tensor | None = None

    @classmethod
    def of(
        cls,
        graph: SpacetimeGraph,
        x: Tensor,
        v: Tensor,
        present: Tensor | None,
        names: tuple[list[str], list[str]] = ([], []),
        pairs: bool = True,
    ) -> Paths:
        """Paths of the nodes of a graph, with those of its attributes that are constant in time.

        Args:
            graph: the attributes are its features, without the speed, and its edge attributes.
            x, v: (B, T, N, n).
            present: nodes that are present in all T states, (B, N); None: all are.
            names: of the features and of the edge attributes; by default they are numbered.
            pairs: False leaves edge attributes out, which take N x N numbers.
        """
        B, _, N, _ = x.shape
        there = torch.ones(B, N, dtype=torch.bool) if present is None else present.cpu()
        seen = there[:, None, :, None]
        x, v = (t.detach().cpu().double().masked_fill(~seen, 0.0) for t in (x, v))
        box = None if graph.box is None else graph.box.cpu().double()
        of_nodes = _named(_node_attributes(graph, there), names[0], "feature")
        of_pairs = {}
        if pairs:
            of_pairs = _named(_pair_attributes(graph, there), names[1], "attribute")
        return cls(x, v, there, of_nodes, of_pairs, box)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: slice | Tensor) -> Paths:
        """Some of the paths."""
        return dataclasses.replace(
            self,
            x=self.x[index],
            v=self.v[index],
            present=self.present[index],
            nodes={name: a[index] for name, a in self.nodes.items()},
            pairs={name: a[index] for name, a in self.pairs.items()},
            box=None if self.box is None else self.box[index],
        )

    @property
    def mass(self) -> Tensor:
        """The masses of nodes, (P, N): those of the data, or 1; 0 for nodes that do not count."""
        return self.nodes.get(MASS, torch.ones_like(self.x[:, 0, :, 0])) * self.present

    def centred(self) -> tuple[Tensor, Tensor]:
        """Positions and velocities relative to those of the centre of mass, (P, T, N, n) each."""
        share = (self.mass / self.mass.sum(1, keepdim=True).clamp(min=1e-300))[:, None, :, None]
        x, v = (t - (share * t).sum(2, keepdim=True) for t in (self.x, self.v))
        return x, v

    def pair_index(self) -> tuple[Tensor, Tensor]:
        """The two nodes of every pair, (M,) each."""
        N = self.x.shape[2]
        i, j = torch.triu_indices(N, N, 1)
        return i, j

    def distances(self) -> Tensor:
        """The distance of every pair, (P, T, M); in a box, to the nearest image; 1 if absent."""
        i, j = self.pair_index()
        r = minimum_image(self.x[:, :, i] - self.x[:, :, j], self.box).norm(dim=-1)
        both = (self.present[:, i] & self.present[:, j])[:, None]
        # Coincident nodes: as far apart as rounding can tell, not nearer.
        least = 1e-12 * r.amax().clamp(min=1e-300)
        return torch.where(both, r.clamp(min=least), 1.0)

    def connected(self) -> Paths:
        """Each connected component, of two nodes or more, as a path of its own.

        Nodes are connected by non-zero attributes of pairs; all are, if there are none. A quantity
        is conserved by each component separately, not only by all together.
        """
        both = self.present[:, :, None] & self.present[:, None, :]
        linked = both
        if self.pairs:
            linked = torch.stack([a != 0 for a in self.pairs.values()]).any(0) & both
        N = self.x.shape[2]
        reached = (linked | torch.eye(N, dtype=torch.bool)).double()
        for _ in range(max(1, (N - 1).bit_length())):  # paths of 1, 2, 4, ... edges
            reached = ((reached @ reached) > 0).double()
        first = reached.argmax(2)  # (P, N), the first node in each node's component
        members = (first[:, None, :] == torch.arange(N)[:, None]) & self.present[:, None]
        path, component = (members.sum(2) > 1).nonzero(as_tuple=True)
        return dataclasses.replace(self[path], present=members[path, component])


def true_paths(windows: Windows) -> Paths:
    """The true paths of windows: their frames, and targets as far as the spacing continues.

    Targets after a gap more than twice the first are left out: over a long time even conserved
    quantities drift, by the errors of a simulation or of a measurement. Velocities that are
    differences belong to the middle of two frames, so positions are moved there, too. If there are
    many windows, an evenly spaced sample is read. Windows in which a node is observed in some but
    not all frames are left out: it acts on the others while unobserved.
    """
    frames, N = windows.length + len(windows.target_steps), int(windows.node_counts.max())
    most = min(MOST_PATHS, MOST_PAIRS // (frames * N * N))
    if most == 0:
        raise InputError(f"nodes: {N:,} of them have too many pairs for all to be looked at.")
    graph, target = windows.sample(most)
    times = torch.cat([graph.times, graph.times[:, -1:] + graph.horizon.double()], dim=1)
    gaps = times.diff(dim=1).mean(0)
    near = int((gaps <= 2.01 * gaps[0]).cumprod(0).sum()) + 1
    x = torch.cat([graph.unwrapped_x(), target.x], dim=1)[:, :near].double()
    v = torch.cat([graph.v, target.v], dim=1)[:, :near].double()
    present: Tensor | None = None
    whole: Tensor | slice = slice(None)
    if graph.observed is not None:
        later = graph.observed[:, -1:] if target.mask is None else target.mask
        seen = torch.cat([graph.observed, later.expand(target.x.shape[:3])], dim=1)[:, :near]
        present = seen.all(1)
        whole = (seen.any(1) == present).all(1).cpu()
    if not windows.trajectories.measured_velocities:
        step = times[:, :near].diff(dim=1)[..., None, None]
        x, v = (x[:, 1:] + x[:, :-1]) / 2, x.diff(dim=1) / step
    if x.shape[1] < 2:
        raise InputError(
            "length: conservation shows along paths; windows of more frames are needed "
            f"(--task.length), here they have {near} at even distances in time."
        )
    return Paths.of(graph, x, v, present, attribute_names(windows.trajectories))[whole]


def _node_attributes(graph: SpacetimeGraph, present: Tensor) -> list[Tensor]:
    """The features that are constant in time, except the speed, (B, N) each."""
    if graph.features is None:
        return []
    seen = present[:, None]  # (B, 1, N)
    last = graph.features[:, -1:]
    speed = speeds(graph.v)
    constant = ((graph.features == last) | ~seen[..., None]).flatten(0, 2).all(0)
    is_speed = (torch.isclose(graph.features, speed) | ~seen[..., None]).flatten(0, 2).all(0)
    kept = last[:, 0].cpu().double().masked_fill(~present.unsqueeze(-1), 0.0)
    # (Names go by index, so that the remaining features keep theirs.)
    return [
        a if fits else torch.zeros(0)
        for a, fits in zip(kept.unbind(-1), (constant & ~is_speed).tolist(), strict=True)
    ]


def _pair_attributes(graph: SpacetimeGraph, present: Tensor) -> list[Tensor]:
    """The edge attributes that are constant in time, as symmetric matrices (B, N, N) each."""
    if graph.edge_attr is None:
        return []
    B, _, N, _ = graph.x.shape
    a = graph.edge_attr.cpu().double()  # (B, 1 or L, N, K, e)
    lists = graph.neighbours
    if lists is not None and lists.shape[1] > 1:
        return [torch.zeros(0)] * a.shape[-1]
    mask = graph.edge_mask[:, -1:].cpu().unsqueeze(-1)
    changing = ((a != a[:, -1:]) & mask).flatten(0, 3).any(0).tolist()
    last = a[:, -1].masked_fill(~mask[:, 0], 0.0)  # (B, N, K, e)
    if lists is not None:
        j = lists[:, 0].cpu().clamp(min=0).unsqueeze(-1).expand_as(last)
        last = last.new_zeros(B, N, N, a.shape[-1]).scatter_add(2, j, last)
    both = (present[:, :, None] & present[:, None, :]).unsqueeze(-1)
    dense = torch.where(both, (last + last.transpose(1, 2)) / 2, 0.0)
    return [
        torch.zeros(0) if moves else b for b, moves in zip(dense.unbind(-1), changing, strict=True)
    ]


def _named(values: list[Tensor], names: list[str], kind: str) -> dict[str, Tensor]:
    """Attributes by name, without empty ones."""
    if len(names) != len(values):
        names = [f"{kind}{place}" for place in range(1, len(values) + 1)]
    return {name: a for name, a in zip(names, values, strict=True) if a.numel()}
