"""Kernel regression on whole motions: what did a body that moved like this do next?

Windows are turned until they fit a template, the mean of the training windows that were turned
alike (generalised Procrustes). How far the nodes get beyond the straight line is then a smooth
function of all that is seen, a sum of Gaussians about training windows, and is turned back.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spacetime_en.errors import InputError
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.nn.etal import AttentionMaps
from spacetime_en.nn.forecaster import (
    Pairs,
    Symmetries,
    check_dims,
    check_no_box,
    check_nodes,
    check_sizes,
)
from spacetime_en.nn.regression import Regression, Start
from spacetime_en.nn.tree import Tree

CHANGES = 3.0  # weight of steps from frame to frame beside places, when windows are compared
WIDTHS = (1.0, 3.0, 10.0, 30.0)  # squared, of the Gaussians, in medians of squared distances
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 1))
MOST = 200_000_000  # numbers to keep
ITERATIONS = 40  # enough for singular values down to a millionth of the largest
ROUNDS = 10  # of turning windows to their mean


class Kernel(Regression):
    """Gaussian kernel regression for nodes with an identity, as the joints of a body have.

    Solving holds all training windows in memory: it is meant for some ten thousand of them.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
        dims: number n of space dimensions.
        parents: the tree of bones, see :class:`~spacetime_en.nn.tree.Tree`.
        centres: the largest number of training windows that Gaussians stand on.
        mirrored: what one side does the other could do: forecasts commute with swapping the limbs
            that the tree has twice.
        up: turn windows about the direction ``up`` of the graphs only.
    """

    template: Tensor  # (A, n)
    mean: Tensor  # of the turned windows, (A n)
    centres: Tensor  # turned windows less their mean, (C, A n)
    width: Tensor  # squared, of the Gaussians

    def __init__(
        self,
        nodes: int,
        frames: int = 10,
        dims: int = 3,
        parents: list[int] | None = None,
        centres: int = 2000,
        mirrored: bool = True,
        up: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(nodes=nodes, frames=frames, dims=dims, centres=centres)
        self.tree = Tree(parents, nodes)
        seen = (frames + 1) * nodes
        if centres * seen * dims > MOST:
            raise InputError(
                f"nodes: {nodes} nodes and {frames} frames make {seen * dims:,} numbers of each of "
                f"{centres} windows, too many to compare windows by; take fewer."
            )
        self.register_buffer("template", torch.zeros(seen, dims))
        self.register_buffer("mean", torch.zeros(seen * dims))
        self.register_buffer("centres", torch.zeros(centres, seen * dims))
        self.register_buffer("width", torch.ones(()))
        # As built, the straight line.
        self.position = nn.Parameter(torch.zeros(centres, nodes * dims))
        self.velocity = nn.Parameter(torch.zeros(centres, nodes * dims))

    @property
    def symmetries(self) -> Symmetries:
        return Symmetries(translation=True, rotation=True, permutation=False)

    def forecast(
        self, graph: SpacetimeGraph, return_attention: bool
    ) -> tuple[Forecast, tuple[AttentionMaps, ...]]:
        if not self.settings["mirrored"]:
            return super().forecast(graph, return_attention)
        return self.tree.both_sides(lambda g: Regression.forecast(self, g, False)[0], graph), ()

    def beyond(self, start: Start) -> tuple[Tensor, Tensor]:
        seen = self._seen(start)
        turn = self._turn(start, seen, self.template)
        near = gaussians((seen @ turn).flatten(1) - self.mean, self.centres, self.width)  # (B, C)
        found = (near @ w for w in (self.position, self.velocity))
        position, velocity = (f.unflatten(1, start.x.shape[1:]) @ turn.mT for f in found)
        return position, velocity

    def _seen(self, start: Start) -> Tensor:
        """All that windows are compared by: steps, where they lead, and the pose, (B, A, n)."""
        check_nodes(start.graph, self.settings["nodes"])
        check_dims(start.graph, self.settings["dims"])
        check_no_box(start.graph, "kernel regression takes offsets from the centroid")
        x, ahead = start.x.unsqueeze(1), start.ahead.unsqueeze(1)  # (B, 1, N, n)
        pose = x - x.mean(2, keepdim=True)
        steps = CHANGES * start.state.x.diff(dim=1)  # (B, L - 1, N, n)
        return torch.cat([steps, CHANGES * ahead, pose], dim=1).flatten(1, 2)

    def _turn(self, start: Start, seen: Tensor, template: Tensor) -> Tensor:
        """The rotations or reflections after which windows fit the template best, (B, n, n)."""
        if not self.settings["up"]:
            return _nearest_rotation(seen.mT @ template)
        up = start.graph.up
        if up is None:
            raise InputError("up: this model was built for graphs with an up direction.")
        # Up becomes the first axis; what is level decides about the rest.
        level = seen - (seen @ up.unsqueeze(-1)) * up.unsqueeze(1)
        cross = level.mT @ torch.cat([torch.zeros_like(template[:, :1]), template[:, 1:]], dim=1)
        first = cross.new_zeros(cross.shape[-1])
        first[0] = 1.0
        weight = cross.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-30)
        return _nearest_rotation(cross + weight * up.unsqueeze(-1) * first)

    @torch.no_grad()
    def solve(self, train: Pairs, val: Pairs) -> float:
        """Set the weights to the best ones, with width and penalty that are best for `val`."""
        if self.settings["mirrored"]:
            train = self._both_sides(train)
        fitted, chosen_by = self._examples(train), self._examples(val)
        template = self._template(fitted)
        turned, values = self._gathered(fitted, template)
        judged, aims = self._gathered(chosen_by, template)
        mean = turned.mean(0)
        chosen = torch.linspace(0, len(turned) - 1, min(len(turned), len(self.centres))).long()
        centres = turned[chosen] - mean
        median = gaps(centres, centres).median().clamp(min=1e-30)
        best: tuple[float, list[Tensor], Tensor] = (torch.inf, [], median)
        for width in (w * median for w in WIDTHS):
            basis = _Basis(centres, width)
            f, f_val = basis(turned - mean), basis(judged - mean)
            found = [_ridge(f, y, f_val, aim) for y, aim in zip(values, aims, strict=True)]
            if found[0][0] < best[0]:
                best = (found[0][0], [basis.back @ w for _, w in found], width)
        error, weights, width = best
        for parameter, w in zip((self.position, self.velocity), weights, strict=True):
            parameter.zero_()[: len(w)] = w.to(parameter)
        self.centres.zero_()[: len(centres)] = centres
        for name, value in {"template": template, "mean": mean, "width": width}.items():
            self.get_buffer(name).copy_(value)
        return error

    def _both_sides(self, pairs: Pairs) -> Pairs:
        for graph, target in pairs:
            yield graph, target
            yield self.tree.mirrored(graph), target.permute(self.tree.mirror)

    def _examples(self, pairs: Pairs) -> list[_Example]:
        return [_Example(start, self._seen(start), *b) for start, b in self.examples(pairs)]

    def _template(self, examples: list[_Example]) -> Tensor:
        """The mean of the windows, turned until they fit it, (A, n)."""
        template = examples[0].seen[0]
        for _ in range(ROUNDS):
            total = torch.zeros_like(template)
            for start, seen, *_ in examples:
                total += (seen @ self._turn(start, seen, template)).sum(0)
            template = total / sum(len(example.seen) for example in examples)
        return template

    def _gathered(
        self, examples: list[_Example], template: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """All windows turned, (W, A n), and what lay beyond the line, for x and v, (W, N n)."""
        parts = []
        for start, seen, x, v in examples:
            turn = self._turn(start, seen, template)
            parts.append([(vectors @ turn).flatten(1) for vectors in (seen, x, v)])
        turned, x, v = (torch.cat(part) for part in zip(*parts, strict=True))
        return turned, (x, v)


class _Example(NamedTuple):
    """Windows to learn from: their vectors (B, A, n), and what lay beyond the line (B, N, n)."""

    start: Start
    seen: Tensor
    x: Tensor
    v: Tensor


class _Basis:
    """Functions that are orthonormal in the kernel's own norm, made of Gaussians on centres.

    Penalised by |w|^2 they are kernel regression on all windows with Gaussians on some of them.

    Args:
        centres: (C, A n).
        width: squared, of the Gaussians.
    """

    def __init__(self, centres: Tensor, width: Tensor) -> None:
        self.centres, self.width = centres, width
        size, axes = torch.linalg.eigh(gaussians(centres, centres, width))
        kept = size > 1e-12 * size[-1]
        self.back = axes[:, kept] / size[kept].sqrt()  # from weights of functions to Gaussians

    def __call__(self, windows: Tensor) -> Tensor:
        functions: Tensor = gaussians(windows, self.centres, self.width) @ self.back
        return functions


def _ridge(f: Tensor, y: Tensor, f_val: Tensor, y_val: Tensor) -> tuple[float, Tensor]:
    """The lowest error on the second set of any penalty, and the weights that have it."""
    size, axes = torch.linalg.eigh(f.mT @ f)
    fy, turned = axes.mT @ (f.mT @ y), f_val @ axes
    found = []
    for penalty in PENALTIES:
        w = fy / (size.clamp(min=0) + penalty)[:, None]
        found.append((float((turned @ w - y_val).square().mean()), w))
    error, w = min(found, key=lambda pair: pair[0])
    return error, axes @ w


def gaussians(windows: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """exp(-|window - centre|^2 / width), (W, C)."""
    return (-gaps(windows, centres) / width).exp()


def gaps(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of all pairs of rows, (W, C)."""
    # (Rows are about 0: dot products round by no more than a share of what rows differ by.)
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return (squares - 2 * a @ b.mT).clamp(min=0.0)


def _nearest_rotation(m: Tensor) -> Tensor:
    """U V^T of m = U S V^T, (B, n, n): of m = A^T B, what turns A into B (Schoenemann 1966).

    By Newton and Schulz's iteration, x (3 - x^T x) / 2, which takes all singular values to 1 and
    keeps those that are 0: what has no direction is given none, where U and V would be arbitrary.
    """
    x = m / m.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-30)
    for _ in range(ITERATIONS):
        x = 1.5 * x - 0.5 * x @ (x.mT @ x)
    return x
