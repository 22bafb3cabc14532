"""The input type of every model, ``SpacetimeGraph``, and the output type, ``Forecast``.

Letters for shapes, throughout the package: B graphs in the batch, L past frames, T target times,
N nodes, n space dimensions, d node features, K neighbours of a node (K = N for a complete graph),
e edge attributes.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch
from torch import Tensor

from spacetime_en import geometry
from spacetime_en._util.errors import InputError
from spacetime_en._util.tensors import TensorFields, as_tensor, register_pytree
from spacetime_en.checks import check_values

if TYPE_CHECKING:
    from torch_geometric.data import Data


@register_pytree
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Forecast(TensorFields):
    """Positions and velocities of every node at T target times.

    There is a time axis even if T = 1; :attr:`last` gives the state at the last time without it.
    Training targets have the same type.

    Args:
        x: positions, (B, T, N, n). Zero for padding. In a periodic box they continue the paths of
            the window, and may lie outside the cell.
        v: velocities, (B, T, N, n).
        times: the target times, measured from the last observed frame, (B, T). None: not given.
        mask: True where a node counts, (B, T, N): a node that has left before a target time, or
            that is padding, does not. None: all do.
        spread: the model's own estimate of the uncertainty of positions, as the standard deviation
            of a coordinate, (B, T, N). None: it gives none.
        samples: positions drawn from the model's distribution of paths, (B, S, T, N, n), S
            samples. None: the model draws none.
    """

    x: Tensor
    v: Tensor
    times: Tensor | None = None
    mask: Tensor | None = None
    spread: Tensor | None = None
    samples: Tensor | None = None

    @property
    def last(self) -> tuple[Tensor, Tensor]:
        """Positions and velocities at the last (or only) target time, (B, N, n) each."""
        return self.x[:, -1], self.v[:, -1]

    def rotate(self, q: Tensor) -> Forecast:
        """Apply Q in O(n), (n, n), or one for each graph, (B, n, n): x -> Qx, v -> Qv."""
        vectors = ("x", "v", "samples")
        turned = {k: _turned(t, q) for k, t in self.fields().items() if k in vectors}
        return self._replace(**turned)

    def translate(self, b: Tensor) -> Forecast:
        """Apply a translation b, (n,): x -> x + b, v -> v."""
        moved = {k: t + b.to(t) for k, t in self.fields().items() if k in ("x", "samples")}
        return self._replace(**moved)

    def permute(self, p: Tensor | Sequence[int]) -> Forecast:
        """Relabel the nodes, (N,): node i becomes the old node p[i]."""
        axes = {"x": 2, "v": 2, "mask": 2, "spread": 2, "samples": 3}
        nodes = torch.as_tensor(p, device=self.x.device)
        moved = {k: t.index_select(axes[k], nodes) for k, t in self.fields().items() if k in axes}
        return self._replace(**moved)

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> Forecast:
        """The forecasts at `index` of the batch, as a batch."""
        return self._map(lambda t: t[index])


@register_pytree
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SpacetimeGraph(TensorFields):
    """A batch of moving point clouds: L observed frames of N nodes in R^n.

    Fields may be given as tensors, NumPy arrays or nested lists. Real fields are cast to the
    dtype of ``x``, except ``times``, which are kept in float64. Values where a node was not
    observed are never read, so they may be anything, even NaN.

    Args:
        x: positions, (B, L, N, n).
        v: velocities, (B, L, N, n), in units of length per unit of ``times``.
        features: invariant node features, (B, L, N, d), or (B, N, d) if constant in time
            (node types, masses), or (N, d) if the same in all graphs. None: the paper's feature,
            the speed |v|, which features of your own replace.
        edge_attr: edge attributes a_ij, (B, N, K, e), or (B, L, N, K, e) if they change, or
            (N, K, e) if the same in all graphs. On a complete graph K = N and the diagonal is not
            read; with ``neighbours``, entry k of node i is for the edge from its k-th neighbour.
        neighbours: the nodes j whose messages reach node i, (N, K), (B, N, K) or one list per
            frame (B, L, N, K); -1 fills unused places. None: every node sees every other.
        observed: True where a node was observed in a frame, (B, L, N); or (B, 1, N) for nodes
            observed in all frames or in none, or (B, L, 1) for whole frames. A node that was never
            observed is padding. None: all were observed in all frames.
        box: periodic cell, edge lengths (n,) or cell vectors as rows, (B, n, n).
        up: a preferred direction of space, such as that opposite to gravity, (n,) or (B, n). It
            rotates with the graph: models that read it are equivariant to rotations about it, and
            to all rotations of graph and direction together.
        times: frame times, (L,) or (B, L), increasing. None: 0, 1, ..., L - 1. The paper's
            networks do not read them.
        horizon: the target times, measured from the last frame in which any node was observed: a
            number or (B,) for one, (B, T) for several. None: 1. The paper's networks do not read
            it: they learn one horizon from their training targets.
    """

    x: Tensor
    v: Tensor
    features: Tensor | None = None
    edge_attr: Tensor | None = None  # kept as (B, 1 or L, N, K, e)
    neighbours: Tensor | None = None  # kept as (B, 1 or L, N, K)
    observed: Tensor | None = None  # kept as (B, L, N)
    box: Tensor | None = None  # kept as (B, n, n)
    up: Tensor | None = None  # kept as (B, n), of length 1
    times: Tensor = None  # type: ignore[assignment]  # kept as (B, L)
    horizon: Tensor = None  # type: ignore[assignment]  # kept as (B, T)

    def __post_init__(self) -> None:
        x = as_tensor("x", self.x)
        if x.ndim != 4 or 0 in x.shape:
            raise InputError(f"x: expected a non-empty shape (B, L, N, n), found {tuple(x.shape)}.")
        if not x.is_floating_point():
            raise InputError(f"x: expected a floating-point dtype, found {x.dtype}.")
        B, L, N, n = x.shape

        def real(
            name: str, *shapes: tuple[int, ...], dtype: torch.dtype = x.dtype
        ) -> Tensor | None:
            """The field as a tensor like x whose shape is one of `shapes` (-1: any size)."""
            value = getattr(self, name)
            if value is None:
                return None
            tensor = as_tensor(name, value)
            fits = [
                len(shape) == tensor.ndim
                and all(want in (-1, have) for want, have in zip(shape, tensor.shape, strict=True))
                for shape in shapes
            ]
            if not any(fits):
                wanted = " or ".join(str(s).replace("-1", "any") for s in shapes)
                raise InputError(f"{name}: expected shape {wanted}, found {tuple(tensor.shape)}.")
            return tensor.to(x.device, dtype)

        v = real("v", (B, L, N, n))
        if v is None:
            raise InputError(
                f"v: expected velocities of shape {(B, L, N, n)}, found none; to take them from "
                "differences of frames, use SpacetimeGraph.from_positions(x)."
            )
        features = real("features", (B, L, N, -1), (B, N, -1), (N, -1))
        if features is not None and features.ndim < 4:
            features = features.expand(B, N, -1)[:, None].expand(B, L, N, -1)

        neighbours = self._canonical_neighbours(x)
        K = N if neighbours is None else neighbours.shape[-1]
        edge_attr = real("edge_attr", (B, N, K, -1), (B, L, N, K, -1), (B, 1, N, K, -1), (N, K, -1))
        if edge_attr is not None and edge_attr.ndim < 5:
            edge_attr = edge_attr.expand(B, N, K, -1)[:, None]

        box = real("box", (n,), (1, n, n), (B, n, n))
        if box is not None:
            if box.ndim == 1 and not (box > 0).all():
                raise InputError(f"box: expected positive edge lengths, found {box.tolist()}.")
            box = (torch.diag(box) if box.ndim == 1 else box).expand(B, n, n)

        up = real("up", (n,), (B, n))
        if up is not None:
            length = geometry.norm(up).unsqueeze(-1)
            if not ((length > 0) & length.isfinite()).all():
                raise InputError("up: expected a direction, found zero, NaN or infinity.")
            up = (up / length).expand(B, n)

        # Times may be far from 0 (dates, epochs), where float32 cannot resolve the steps.
        times = real("times", (L,), (B, L), dtype=torch.float64)
        times = torch.arange(L, device=x.device) if times is None else times
        times = times.to(torch.float64)
        horizon = real("horizon", (), (B,), (B, -1))
        horizon = x.new_ones(()) if horizon is None else horizon
        if horizon.ndim == 2 and horizon.shape[1] == 0:
            raise InputError("horizon: expected at least one target time, found none.")

        canonical = {
            "x": x,
            "v": v,
            "features": features,
            "edge_attr": edge_attr,
            "neighbours": neighbours,
            "observed": self._canonical_observed(x),
            "box": box,
            "up": up,
            "times": times.expand(B, L),
            "horizon": horizon if horizon.ndim == 2 else horizon.expand(B)[:, None],
        }
        for name, value in canonical.items():
            object.__setattr__(self, name, value)
        check_values(self)

    def _canonical_observed(self, x: Tensor) -> Tensor | None:
        if self.observed is None:
            return None
        B, L, N, _ = x.shape
        observed = as_tensor("observed", self.observed)
        shapes = ((B, L, N), (B, 1, N), (B, L, 1))
        if observed.dtype != torch.bool or observed.shape not in shapes:
            raise InputError(
                f"observed: expected a boolean tensor of shape {shapes[0]}, {shapes[1]} or "
                f"{shapes[2]}, found {observed.dtype} of shape {tuple(observed.shape)}."
            )
        return observed.to(x.device).expand(B, L, N)

    def _canonical_neighbours(self, x: Tensor) -> Tensor | None:
        B, L, N, _ = x.shape
        if self.neighbours is None:
            return None
        index = as_tensor("neighbours", self.neighbours)
        if index.dtype not in (torch.int64, torch.int32):
            raise InputError(f"neighbours: expected whole numbers, found {index.dtype}.")
        leading = index.shape[:-2]
        if index.ndim < 2 or index.shape[-2] != N or leading not in ((), (B,), (B, L), (B, 1)):
            raise InputError(
                f"neighbours: expected shape (N, K), (B, N, K) or (B, L, N, K) with B={B}, L={L}, "
                f"N={N}, found {tuple(index.shape)}."
            )
        index = index.to(x.device, torch.int64)
        return index if len(leading) == 2 else index.expand(B, *index.shape[-2:])[:, None]

    # --- builders -----------------------------------------------------------------------------

    @classmethod
    def from_particles(cls, x: Any, v: Any, charge: Any, **fields: Any) -> SpacetimeGraph:
        """The paper's graph: features |v_i|, edge attributes A_ij = c_i c_j.

        Args:
            x: positions, (B, L, N, n).
            v: velocities, (B, L, N, n).
            charge: charges c_i, (B, N).
            fields: any other field of the class, such as ``times`` and ``horizon``.
        """
        if fields.get("edge_attr") is not None:
            raise InputError(
                "edge_attr: from_particles sets it to c_i c_j; for attributes of your own, call "
                "SpacetimeGraph(x, v, edge_attr=...)."
            )
        plain = cls(x, v, **fields)
        c = as_tensor("charge", charge).to(plain.x)
        B, _, N, _ = plain.x.shape
        if c.shape != (B, N):
            raise InputError(f"charge: expected shape (B, N) = {(B, N)}, found {tuple(c.shape)}.")
        if plain.neighbours is None:
            c_j = c[:, None, None, :]  # (B, 1, 1, N)
        else:
            index = plain.neighbours.clamp(min=0)  # (B, 1 or L, N, K)
            c_j = c.gather(1, index.flatten(1)).view(index.shape)
        return plain.replace(edge_attr=(c[:, None, :, None] * c_j).unsqueeze(-1))

    @classmethod
    def from_positions(cls, x: Any, **fields: Any) -> SpacetimeGraph:
        """A graph from positions alone; velocities are differences of observed frames.

        A node's velocity is its displacement since its previous observation, divided by the time
        between the two; its first observation takes the velocity of the second. A node observed
        only once is taken to be at rest. No frame outside the window is used.

        Args:
            x: positions, (B, L, N, n), with at least one node observed twice in each graph.
            fields: any other field of the class, such as ``times`` and ``horizon``.
        """
        x = as_tensor("x", x)
        plain = cls(x, torch.zeros_like(x), **fields)
        x = plain.unwrapped_x()
        seen = plain.observed
        if x.shape[1] < 2 or (seen is not None and (seen.sum(1) < 2).all(1).any()):
            raise InputError(
                "x: velocities from differences need at least two observed frames in each graph; "
                "give more frames, or the velocities themselves."
            )
        if seen is None:
            v = x.diff(dim=1) / plain.times.diff(dim=1)[..., None, None].to(x.dtype)
            return plain._replace(v=torch.cat([v[:, :1], v], dim=1))
        frame = torch.arange(x.shape[1], device=x.device)[None, :, None].expand_as(seen)
        newest = newest_observed(seen)
        before = newest.roll(1, dims=1)
        before[:, 0] = -1
        first = seen & (before < 0)  # (B, L, N): a node's first observation
        second = (seen & (seen.cumsum(1) == 2)).int().argmax(1, keepdim=True)  # (B, 1, N)
        this = torch.where(first, second, frame)
        before = torch.where(first, newest, before.clamp(min=0))
        pair = seen & (seen.sum(1, keepdim=True) > 1)

        x = x.masked_fill(~seen[..., None], 0.0)
        step = x.gather(1, _like(this, x)) - x.gather(1, _like(before, x))
        times = plain.times[..., None].expand(seen.shape)
        time = times.gather(1, this) - times.gather(1, before)
        v = step / torch.where(pair, time, 1.0)[..., None].to(x.dtype)
        return plain._replace(v=v.masked_fill(~pair[..., None], 0.0))

    @classmethod
    def from_pyg(cls, data: Data | Sequence[Data]) -> SpacetimeGraph:
        """From PyTorch Geometric ``Data``; see :func:`spacetime_en.pyg.from_pyg`."""
        from spacetime_en.pyg import from_pyg

        return from_pyg(data)

    def to_pyg(self) -> list[Data]:
        """To PyTorch Geometric, one ``Data`` per graph; see :func:`spacetime_en.pyg.to_pyg`."""
        from spacetime_en.pyg import to_pyg

        return to_pyg(self)

    # --- what models read ---------------------------------------------------------------------

    @property
    def present(self) -> Tensor | None:
        """(B, N), True where a node was observed in any frame; None if all were in every frame."""
        return None if self.observed is None else self.observed.any(1)

    @property
    def edge_mask(self) -> Tensor:
        """(B, 1 or L, N, K), True where node i and its k-th neighbour j != i were both observed."""
        B, L, N, _ = self.x.shape
        node = torch.arange(N, device=self.x.device)
        j = node.expand(B, 1, N, N) if self.neighbours is None else self.neighbours
        mask = (j >= 0) & (j != node[:, None])
        if self.observed is not None:
            j = j.clamp(min=0).expand(B, L, *j.shape[2:])
            there = self.observed.gather(2, j.flatten(2)).view(j.shape)
            mask = mask & there & self.observed.unsqueeze(-1)
        return mask

    @property
    def h(self) -> Tensor:
        """The invariant node features h_i(t), (B, L, N, d); the speeds |v| if none were given."""
        if self.features is not None:
            return self.features
        return speeds(self.v)

    @property
    def feature_width(self) -> int:
        """d, the number of node features."""
        return 1 if self.features is None else self.features.shape[-1]

    @property
    def edge_width(self) -> int:
        """e, the number of edge attributes."""
        return 0 if self.edge_attr is None else self.edge_attr.shape[-1]

    def scales(self) -> dict[str, float]:
        """A length and a time scale in which these graphs are of order one, for ``build_model``.

        The length is the root mean square distance of nodes from their centroid (for single nodes,
        the distance travelled from the first frame to the last target); the time is how long it
        takes to cover it at the root mean square speed. Measure them on training data, and keep
        them with the model: ``build_model("set", like=graph, **graph.scales())``.
        """
        seen = self.observed
        seen = torch.ones(self.x.shape[:3], dtype=torch.bool) if seen is None else seen
        weight = seen.to(self.x).unsqueeze(-1)
        x, v = (t.masked_fill(weight == 0, 0.0) for t in (self.unwrapped_x(), self.v))
        centroid = (x * weight).sum(2, keepdim=True) / weight.sum(2, keepdim=True).clamp(min=1)
        length = ((x - centroid).square() * weight).sum() / weight.sum()
        speed = (v.square() * weight).sum() / weight.sum()
        if not speed > 0:
            raise InputError(
                "scales: all nodes are at rest; give the model's length_scale and time_scale "
                "yourself (--model.length-scale, --model.time-scale)."
            )
        fast, size = float(speed.sqrt()), float(length.sqrt())
        if size == 0:
            duration = self.times[:, -1] - self.times[:, 0] + self.horizon[:, -1]
            size = fast * float(duration.mean())
        return {"length_scale": size, "time_scale": size / fast}

    def unwrapped_x(self) -> Tensor:
        """Positions as continuous paths, (B, L, N, n), without jumps across the faces of a box."""
        if self.box is None or self.observed is None:
            return geometry.unwrap(self.x, self.box)
        # A missing node stays where it was last observed or, before that, where it first will be.
        newest = newest_observed(self.observed)
        first = self.observed.int().argmax(1, keepdim=True)
        source = torch.where(newest < 0, first, newest)
        return geometry.unwrap(self.x.gather(1, _like(source, self.x)), self.box)

    @property
    def last_frame(self) -> Tensor:
        """(B,), the index of the last frame in which any node was observed."""
        B, L = self.x.shape[:2]
        if self.observed is None:
            return torch.full((B,), L - 1, device=self.x.device)
        return newest_observed(self.observed.any(2))[:, -1]

    @property
    def last_observed(self) -> Tensor:
        """(B, N), the index of the last frame in which each node was observed; padding: 0."""
        B, L, N, _ = self.x.shape
        if self.observed is None:
            return torch.full((B, N), L - 1, device=self.x.device)
        return newest_observed(self.observed)[:, -1].clamp(min=0)

    @property
    def since(self) -> Tensor:
        """(B, L), the time from each frame to :attr:`last_frame`, float64."""
        return self.times.gather(1, self.last_frame[:, None]) - self.times

    @property
    def age(self) -> Tensor:
        """(B, N), the time from each node's last observation to the graph's last frame."""
        return self.since.gather(1, self.last_observed).to(self.x.dtype)

    def latest(self) -> SpacetimeGraph:
        """The last frame as a graph of one frame, with all nodes of the window.

        Nodes missing from it are extrapolated from their last observation at constant velocity,
        and the attributes of an edge are those of the last frame in which both of its nodes were
        observed (0 if there is none). Of neighbour lists that change from frame to frame, the last
        is used; the missing nodes have no neighbours in it. In a box, positions continue the paths
        of the window.
        """
        latest = self.unwrapped().frame(self.last_frame)
        if self.observed is None:
            return latest
        index = self.last_observed[:, None]  # (B, 1, N)
        at = _like(index, self.x)
        v = self.v.gather(1, at)
        there = {"v": v, "observed": self.observed.any(1, keepdim=True)}
        there["x"] = self.unwrapped_x().gather(1, at) + self.age[:, None, :, None] * v
        if self.features is not None:
            there["features"] = self.features.gather(1, _like(index, self.features))
        if self.neighbours is not None and self.neighbours.shape[1] > 1:
            assert latest.neighbours is not None
            there["neighbours"] = latest.neighbours.masked_fill(~latest.edge_mask, -1)
        elif self.edge_attr is not None and self.edge_attr.shape[1] > 1:
            newest = newest_observed(self.edge_mask)[:, -1:].unsqueeze(-1)  # (B, 1, N, K, 1)
            at = newest.clamp(min=0).expand(-1, -1, -1, -1, self.edge_width)
            there["edge_attr"] = self.edge_attr.gather(1, at).masked_fill(newest < 0, 0.0)
        return latest._replace(**there)

    def unwrapped(self) -> SpacetimeGraph:
        """The graph with positions as continuous paths, see :meth:`unwrapped_x`."""
        return self if self.box is None else self._replace(x=self.unwrapped_x())

    def frame(self, index: Tensor, horizon: Tensor | None = None) -> SpacetimeGraph:
        """One frame of each graph, as a batch of single-frame graphs.

        Args:
            index: of the frame in each graph, (B,).
            horizon: measured from that frame, (B, T); None: that of the graph.
        """
        frame = self.frames(index[:, None])
        return frame if horizon is None else frame._replace(horizon=horizon)

    def frames(self, index: Tensor) -> SpacetimeGraph:
        """Some frames of each graph, by index (B, any); fields shared by all frames stay as is."""
        L, kept = self.x.shape[1], {}
        for name in ("x", "v", "features", "edge_attr", "neighbours", "observed", "times"):
            value = getattr(self, name)
            if value is not None and value.shape[1] == L:
                at = index.view(*index.shape, *[1] * (value.ndim - 2))
                at = at.expand(-1, -1, *value.shape[2:])
                kept[name] = value.gather(1, at)
        return self._replace(**kept)

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, index: SupportsIndex | slice | Tensor | Sequence[int]) -> SpacetimeGraph:
        """The graphs at `index` of the batch, as a batch."""
        if isinstance(index, tuple):
            index = list(index)
        if not isinstance(index, slice | Sequence) and getattr(index, "ndim", 0) == 0:
            index = [operator.index(index)]
        return self._map(lambda t: t[index])

    # --- the actions of E(n) and S_N ----------------------------------------------------------

    def rotate(self, q: Tensor) -> SpacetimeGraph:
        """Apply Q in O(n), (n, n), or one for each graph, (B, n, n): x -> Qx, v -> Qv.

        The box and `up` are rotated, too.
        """
        B, _, _, n = self.x.shape
        if q.shape not in ((n, n), (B, n, n)):
            raise InputError(f"q: expected shape {(n, n)}, found {tuple(q.shape)}.")
        vectors = ("x", "v", "box", "up")
        turned = {k: _turned(t, q) for k, t in self.fields().items() if k in vectors}
        return self._replace(**turned)

    def translate(self, b: Tensor) -> SpacetimeGraph:
        """Apply a translation b, (n,): x -> x + b, v -> v."""
        if b.shape != self.x.shape[-1:]:
            raise InputError(f"b: expected {self.x.shape[-1]} numbers, found {tuple(b.shape)}.")
        return self._replace(x=self.x + b.to(self.x))

    def permute(self, p: Tensor) -> SpacetimeGraph:
        """Relabel the nodes, (N,): node i becomes the old node p[i]."""
        p = p.to(self.x.device)
        if p.sort().values.tolist() != list(range(self.x.shape[2])):
            raise InputError(f"p: expected each of the {self.x.shape[2]} nodes once.")
        moved = {"x": self.x[:, :, p], "v": self.v[:, :, p]}
        if self.features is not None:
            moved["features"] = self.features[:, :, p]
        if self.observed is not None:
            moved["observed"] = self.observed[:, :, p]
        if self.edge_attr is not None:
            rows = self.edge_attr[:, :, p]
            moved["edge_attr"] = rows if self.neighbours is not None else rows[:, :, :, p]
        if self.neighbours is not None:
            old = self.neighbours[:, :, p]
            moved["neighbours"] = torch.where(old < 0, old, p.argsort()[old.clamp(min=0)])
        return self._replace(**moved)


def speeds(v: Tensor) -> Tensor:
    """The paper's feature |v|, (..., n) -> (..., 1)."""
    return geometry.norm(v).unsqueeze(-1)


def which_are_speeds(graph: SpacetimeGraph) -> Tensor:
    """Which of the graphs' features are the speeds of the nodes, wherever observed, (d,)."""
    is_speed = graph.h.isclose(speeds(graph.v), rtol=1e-4, atol=0.0)  # (in any unit)
    if graph.observed is not None:
        is_speed = is_speed | ~graph.observed.unsqueeze(-1)
    return is_speed.flatten(0, 2).all(0)


def _turned(vectors: Tensor, q: Tensor) -> Tensor:
    """Q times each vector, (B, ..., n), by (n, n) for all graphs or (B, n, n)."""
    q = q.to(vectors)
    if q.ndim == 2:
        return vectors @ q.mT
    return torch.einsum("bij,b...j->b...i", q, vectors)


def newest_observed(observed: Tensor) -> Tensor:
    """The index of the last observed frame up to each frame, or -1, (B, L, ...) -> (B, L, ...)."""
    frame = torch.arange(observed.shape[1], device=observed.device)
    later = frame.view(-1, *[1] * (observed.ndim - 2))
    frames = torch.where(observed, later, -1)
    if not torch.compiler.is_compiling():
        return frames.cummax(1).values
    # ONNX has no cumulative maximum: take the maximum over all pairs of frames instead.
    return torch.where(later.unsqueeze(1) >= later, frames.unsqueeze(1), -1).amax(2)


def _like(frames: Tensor, x: Tensor) -> Tensor:
    """Frame indices (B, L, N) as an index for ``x.gather(1, ...)``, (B, L, N, n)."""
    return frames.unsqueeze(-1).expand(*frames.shape, x.shape[3])
