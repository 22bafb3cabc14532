"""A plain spatio-temporal transformer on coordinates, to compare equivariant models with.

It reads the same inputs as SET-2, corrects the same base and minimises the same loss. It differs in
one respect: it reads coordinates directly, and nothing relates what it does in one direction to
what it does in another. Rotational symmetry has to be learned, from the data or from augmentation
(:mod:`~spacetime_en.training.augmentation`).

A token is a node in a frame. Attention over the frames of a node, by their true times, reduces them
to one token per node; then come layers of attention over the nodes, with relative encodings b_ij
and e_ij of each pair (Shaw et al. 2018):

    (b_ij, e_ij) = phi_p(x_i - x_j, log|x_i - x_j|, a_ij),
    alpha_ij = softmax_j(q_i . k_j / sqrt(d) + b_ij),
    h_i <- h_i + W sum_j alpha_ij (v_j + e_ij),    h_i <- h_i + phi_h(h_i).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en import geometry
from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, PositiveFloat, PositiveInt
from spacetime_en.geometry import Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.layers.egcl import mlp
from spacetime_en.nn.layers.virtual_points import CLOSE, HEADS
from spacetime_en.nn.models.base import BaseName
from spacetime_en.nn.models.path import PathCorrector, or_one, rms
from spacetime_en.nn.requirements import (
    check_complete,
    check_dims,
    check_no_box,
    check_node_features,
    check_widths,
)
from spacetime_en.nn.state import State, Units, at_frame, require_up

FREQUENCIES = 4  # of the encoding of times: 1/4, 1/2, 1 and 2 periods per history


class AttentionLayer(nn.Module):
    """A pre-norm transformer layer: tokens attend to a context, then each goes through an MLP.

    Args:
        width: width of the tokens, a multiple of the number of heads.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.feedforward = nn.Sequential(nn.LayerNorm(width), *mlp(width, 2 * width, width))

    def forward(
        self, h: Tensor, context: Tensor, bias: Tensor, values: Tensor | None = None
    ) -> Tensor:
        """Tokens, (..., S, width), to the same shape.

        Args:
            context: the tokens to attend to, (..., M, width).
            bias: b_ij, added to the logits, (..., heads or 1, S or 1, M).
            values: e_ij, added to the values, (..., S, M, width); None: 0.
        """
        q = self.query(self.norm(h))
        k, v = self.key_value(self.norm(context)).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for t in (q, k, v))
        alpha = (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1)  # (..., heads, S, M)
        mixed = (alpha @ v).transpose(-2, -3)  # (..., S, heads, width / heads)
        if values is not None:
            weight = alpha.transpose(-2, -3).unsqueeze(-2)  # (..., S, heads, 1, M)
            e = values.unflatten(-1, (HEADS, -1)).transpose(-2, -3)  # (..., S, heads, M, ·)
            mixed = mixed + (weight @ e).squeeze(-2)
        h = h + self.out(mixed.flatten(-2))
        updated: Tensor = h + self.feedforward(h)
        return updated


class Transformer(PathCorrector):
    """A correction to a simple forecast by attention over time, then over nodes, on coordinates.

    Positions are relative to the centroid of the last frame. N, L and T are free. The model reads
    frame times and target times, and handles gaps.

    Args:
        dims: space dimensions n.
        node_features: number of node features, such as masses; 0 for graphs without.
        edge_features: number e of edge attributes.
        frames: number L of frames; used only by ridge as the base.
        targets: number T of target times to train for.
        hidden: width of the tokens, a multiple of 4.
        layers: number of layers of attention over nodes, after one over time.
        base: the forecast to correct: ``straight-line``, ``last-frame``, ``parabola``,
            ``least-squares-line``, ``ridge``, or ``auto``, the best of these on validation windows.
        up: read the direction ``up`` of the graphs.
        length_scale: the unit of length of the network, see ``SpacetimeGraph.scales``.
        time_scale: the unit of time of the network.
    """

    # Measured on data by `calibrate`, not learned.
    size: Tensor  # root mean square of positions, displacements, velocities and their changes, (4,)
    duration: Tensor  # of histories, root mean square, ()
    spacing: Tensor  # root mean square distance of nodes, ()
    feature_mean: Tensor  # (node_features,)
    feature_size: Tensor  # standard deviation, (node_features,)
    edge_size: Tensor  # root mean square of each edge attribute, (e,)

    def __init__(
        self,
        dims: PositiveInt = 3,
        node_features: Count = 0,
        edge_features: Count = 1,
        frames: PositiveInt = 10,
        targets: PositiveInt = 1,
        hidden: PositiveInt = 52,
        layers: PositiveInt = 3,
        base: BaseName = "auto",
        up: bool = False,
        length_scale: PositiveFloat = 1.0,
        time_scale: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        if hidden % HEADS:
            raise InputError(f"hidden: expected a multiple of {HEADS}, found {hidden}.")
        self._correct(base, frames, edge_features, targets, None)
        self.register_buffer("size", torch.ones(4))
        self.register_buffer("duration", torch.ones(()))
        self.register_buffer("spacing", torch.ones(()))
        self.register_buffer("feature_mean", torch.zeros(node_features))
        self.register_buffer("feature_size", torch.ones(node_features))
        self.register_buffer("edge_size", torch.ones(edge_features))
        inputs = 4 * dims + node_features + dims * up + 1 + 2 * FREQUENCIES
        self.enter = mlp(inputs, hidden, hidden)
        self.over_time = AttentionLayer(hidden)
        self.over_nodes = nn.ModuleList(AttentionLayer(hidden) for _ in range(layers))
        self.pairs = mlp(dims + 1 + edge_features, hidden, layers * (HEADS + hidden))
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, hidden)
        self.leave_at = nn.Linear(3, hidden, bias=False)
        # The correction of x and v, and a coefficient of the base's deviation from uniform motion.
        self.coefficients = nn.Linear(hidden, 2 * (dims + 1))
        nn.init.zeros_(self.coefficients.weight)
        nn.init.zeros_(self.coefficients.bias)

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=True, rotation=False, permutation=True)

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        h = self._encode(graph)
        q = self.leave(self.norm(h)).unsqueeze(1) + self.leave_at(self._clock(graph)).unsqueeze(2)
        q = self.coefficients(F.silu(q)).unflatten(-1, (2, -1))  # (B, T, N, 2, n + 1)
        if graph.present is not None:
            q = q.masked_fill(~graph.present[:, None, :, None, None], 0.0)
        return self._corrected(graph, q[..., :-1], q[..., -1:])

    @torch.no_grad()
    def calibrate(self, train: Example, val: Example) -> None:
        """Choose the base, and measure the scales of the network's inputs and outputs."""
        super().calibrate(train, val)
        graph, latest = train[0], train[0].latest()
        units = self.units(latest)
        state, now = units.normalize(graph), units.normalize(latest)
        seen = _seen(graph)
        self.size.copy_(or_one(torch.stack([rms(t[seen]) for t in _coordinates(graph, state)])))
        self.duration.copy_(or_one(rms(self._age(graph, seen).amax(1))).to(self.duration))
        mask = latest.edge_mask[:, 0]
        if mask.any():
            self.spacing.copy_(or_one(rms(geometry.pairwise_differences(now.x[:, 0])[mask])))
            self.edge_size.copy_(or_one(rms(now.a[:, 0][mask], (0,))))
        if self.settings["node_features"]:
            features = state.h[seen]
            self.feature_mean.copy_(features.mean(0))
            self.feature_size.copy_(or_one(features.std(0, correction=0)))

    # --- the network ------------------------------------------------------------------------------

    def units(self, graph: SpacetimeGraph) -> Units:
        return super().units(graph.latest())

    def _encode(self, graph: SpacetimeGraph) -> Tensor:
        """Tokens of the nodes after all layers, (B, N, hidden)."""
        c, latest = self.settings, graph.latest()
        check_complete(graph, "the transformer")
        check_no_box(graph, "the transformer reads positions about the centroid")
        check_dims(graph, c["dims"])
        check_node_features(graph, c["node_features"])
        check_widths(graph, graph.feature_width, c["edge_features"])
        units, seen = self.units(latest), _seen(graph)
        frames = self.enter(self._tokens(graph, units.normalize(graph), seen))  # (B, N, L, hidden)
        last = graph.last_observed[..., None, None].expand(-1, -1, 1, frames.shape[-1])
        unseen = _penalty(seen.mT, frames)[:, :, None, None]  # (B, N, 1, 1, L)
        # (Only a node's last token is read, so no other has to attend.)
        h: Tensor = self.over_time(frames.gather(2, last), frames, unseen)  # (B, N, 1, hidden)
        h = h.squeeze(2)
        for layer, pairs in zip(self.over_nodes, self._pairs(latest, units), strict=True):
            h = layer(h, h, *pairs)
        return h

    def _tokens(self, graph: SpacetimeGraph, state: State, seen: Tensor) -> Tensor:
        """The inputs for each node in each frame, (B, N, L, inputs)."""
        parts = [
            torch.asinh(t / size)
            for t, size in zip(_coordinates(graph, state), self.size, strict=True)
        ]
        if self.settings["node_features"]:
            parts.append((state.h - self.feature_mean) / self.feature_size)
        if self.settings["up"]:
            parts.append(require_up(graph)[:, None, None].expand_as(state.x))
        age = (self._age(graph, seen) / self.duration).to(state.x)
        angles = age * 2.0 ** torch.arange(-1, FREQUENCIES - 1).to(age) * math.pi
        clock = torch.cat([age, angles.cos(), angles.sin()], dim=-1)  # (B, L, 1, 1 + 2 waves)
        parts.append(clock.expand(-1, -1, state.x.shape[2], -1))
        return torch.cat(parts, dim=-1).transpose(1, 2)

    def _age(self, graph: SpacetimeGraph, seen: Tensor) -> Tensor:
        """The time from each frame to the last, 0 for padded frames, (B, L, 1, 1)."""
        age = graph.since.masked_fill(~seen.any(2), 0.0)
        return age[..., None, None]

    def _pairs(self, latest: SpacetimeGraph, units: Units) -> list[tuple[Tensor, Tensor]]:
        """For each layer b_ij, (B, heads, N, N), and e_ij, (B, N, N, hidden)."""
        now, mask = units.normalize(latest), latest.edge_mask[:, 0]
        x_ij = geometry.pairwise_differences(now.x[:, 0]) / self.spacing  # (B, N, N, n)
        square = x_ij.square().sum(-1, keepdim=True)
        s_ij = [torch.asinh(x_ij), (square + CLOSE**2).log() / 2, now.a[:, 0] / self.edge_size]
        encoded = self.pairs(torch.cat(s_ij, dim=-1))  # (B, N, N, layers (heads + hidden))
        itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        missing = _penalty(mask | itself, encoded).unsqueeze(1)
        layers = encoded.chunk(len(self.over_nodes), dim=-1)
        return [(t[..., :HEADS].movedim(-1, 1) + missing, t[..., HEADS:]) for t in layers]


def _seen(graph: SpacetimeGraph) -> Tensor:
    """Where a node was observed, (B, L, N)."""
    return torch.ones_like(graph.x[..., 0]) > 0 if graph.observed is None else graph.observed


def _coordinates(graph: SpacetimeGraph, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions and velocities, and their differences from a node's last, each (B, L, N, n).

    In the order x, x - x(last), v, v - v(last). Differences are small compared with what they are
    differences of, and hold all of the acceleration.
    """
    x, v = (at_frame(t, graph.last_observed).unsqueeze(1) for t in (state.x, state.v))
    return state.x, state.x - x, state.v, state.v - v


def _penalty(allowed: Tensor, like: Tensor) -> Tensor:
    """The mask as a bias on logits: 0 where attention is allowed, elsewhere hugely negative."""
    lowest = torch.finfo(like.dtype).min / 2  # (a bias may be added)
    return torch.zeros_like(allowed, dtype=like.dtype).masked_fill(~allowed, lowest)
