"""Kernel regression on whole motions: what did a body that moved like this do next?

Windows are turned until they fit a template, the mean of the training windows that were turned
alike (generalised Procrustes). How far the nodes get beyond the straight line is then a smooth
function of all that is seen, a sum of Gaussians about training windows, and is turned back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Positive
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.geometry import NAMED_NODES, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import mse
from spacetime_en.nn.forecaster import Examples
from spacetime_en.nn.models.regression import Regression, Start, best
from spacetime_en.nn.models.tree import Joints, Tree
from spacetime_en.nn.requirements import check_dims, check_no_box, check_nodes
from spacetime_en.nn.state import up_of

CHANGES = 3.0  # weight of steps from frame to frame beside places, when windows are compared
WIDTHS = (1.0, 3.0, 10.0, 30.0)  # squared, of the Gaussians, in medians of squared distances
PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 1))
MOST = 200_000_000  # numbers to keep
ITERATIONS = 30  # for singular values down to 1e-5 of the largest: less is rounding in float32
WINDOWS = 20_000  # to fit, at most
ROUNDS = 10  # of turning windows to their mean


class Kernel(Regression):
    """Gaussian kernel regression for nodes with an identity, as the joints of a body have.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
        dims: number n of space dimensions.
        parents: the tree of bones, see :class:`~spacetime_en.nn.models.tree.Tree`.
        centres: the largest number of training windows that Gaussians stand on.
        mirrored: what one side does the other could do: forecasts commute with swapping the limbs
            that the tree has twice.
        up: turn windows about the direction ``up`` of the graphs only.
    """

    template: Tensor  # of the A = (L + 1) N vectors of a window, (A, n)
    mean: Tensor  # of the turned windows, (A n)
    centres: Tensor  # turned windows less their mean, (C, A n)
    width: Tensor  # squared, of the Gaussians

    def __init__(
        self,
        nodes: Joints,
        frames: Positive = 10,
        dims: Positive = 3,
        parents: list[int] | None = None,
        centres: Positive = 2000,
        mirrored: bool = True,
        up: bool = False,
    ) -> None:
        super().__init__()
        self.tree = Tree(parents, nodes, mirrored)
        seen = (frames + 1) * nodes
        if centres * seen * dims > MOST:
            raise InputError(
                f"centres: {centres} windows of {nodes} nodes and {frames} frames are "
                f"{centres * seen * dims:,} numbers, more than {MOST:,}; take fewer windows "
                "(a body: memory=0)."
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
        return NAMED_NODES

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        with _in_full_precision(graph.x.device.type):
            return self.tree.both_sides(super().forecast, graph)

    def residual(self, start: Start) -> tuple[Tensor, Tensor]:
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
        # Up becomes the first axis; what is level decides about the rest.
        up = up_of(start.graph).unsqueeze(-1)  # (B, n, 1)
        level = _unit(_level(seen, up).mT @ F.pad(template[:, 1:], (1, 0)))
        first = F.pad(up.new_ones(1), (0, up.shape[1] - 1))
        return _nearest_rotation(level + up * first)

    @torch.no_grad()
    def solve(self, train: Examples, val: Examples) -> float:
        """Set the weights to the best ones, with width and penalty that are best for `val`.

        Of very many training windows, some are taken, from all of them alike.
        """
        val = list(val)
        fitted, others = self._examples(self._both_sides(train)), self._examples(val)
        template = self._template(fitted)
        turned, values = self._gathered(fitted, template)
        judged, aims = self._gathered(others, template)
        some = evenly_spaced_indices(len(turned), WINDOWS)
        turned, values = turned[some], [y[some] for y in values]
        mean = turned.mean(0)
        centres = turned[evenly_spaced_indices(len(turned), len(self.centres))] - mean
        gap = _typical_gap(centres, turned)

        def fitted_with(width: Tensor) -> tuple[float, tuple[Tensor, list[Tensor]]]:
            basis = _Basis(centres, width)
            found = _ridge(basis(turned - mean), values, basis(judged - mean), aims)
            return found[0][0], (width, [basis.back @ w for _, w in found])

        _, (width, weights) = best(fitted_with(share * gap) for share in WIDTHS)
        for parameter, w in zip((self.position, self.velocity), weights, strict=True):
            parameter.zero_()[: len(w)] = w.to(parameter)
        self.centres.zero_()[: len(centres)] = centres
        for name, value in {"template": template, "mean": mean, "width": width}.items():
            self.get_buffer(name).copy_(value)
        return self._error(val)

    def _error(self, examples: Examples) -> float:
        """The mean squared position error of the forecasts."""
        found = ((self(graph.to(self.position.dtype)), target) for graph, target in examples)
        return float(torch.cat([mse(end.x.to(target.x), target.x) for end, target in found]).mean())

    def _both_sides(self, examples: Examples) -> Examples:
        for graph, target in examples:
            yield graph, target
            if self.tree.has_sides:
                yield self.tree.mirrored(graph), target.permute(self.tree.mirror)

    def _examples(self, examples: Examples) -> list[_Seen]:
        return [_Seen(start, self._seen(start), *b) for start, b in self.starts(examples)]

    def _template(self, examples: list[_Seen]) -> Tensor:
        """The mean of the windows, turned until they fit it, (A, n)."""
        template = max((self._fullest(e) for e in examples), key=lambda pair: pair[0])[1]
        for _ in range(ROUNDS):
            total = torch.zeros_like(template)
            for start, seen, *_ in examples:
                total += (seen @ self._turn(start, seen, template)).sum(0)
            template = total / sum(len(example.seen) for example in examples)
        return template

    def _fullest(self, example: _Seen) -> tuple[float, Tensor]:
        """The window that is extended in most directions, and how far in the least of them.

        A window that is flat says nothing about how to turn others across.
        """
        start, seen, *_ = example
        if not self.settings["up"]:
            least = torch.linalg.svdvals(seen)[:, -1]
            return float(least.max()), seen[least.argmax()]
        up = up_of(start.graph).unsqueeze(-1)
        sizes = torch.linalg.svdvals(_level(seen, up))
        least = sizes[:, min(sizes.shape[1] - 1, max(0, seen.shape[-1] - 2))]
        best = int(least.argmax())
        axes, _ = torch.linalg.qr(torch.cat([up[best], torch.eye(len(up[best])).to(up)], dim=1))
        axes = axes * torch.where((axes[:, :1] * up[best]).sum() < 0, -1.0, 1.0)
        return float(least[best]), seen[best] @ axes  # up is the first axis

    def _gathered(self, examples: list[_Seen], template: Tensor) -> tuple[Tensor, list[Tensor]]:
        """All windows turned, (W, A n), and what lay beyond the line, for x and v, (W, N n)."""
        parts = []
        for start, seen, *residual in examples:
            turn = self._turn(start, seen, template)
            parts.append([(vectors @ turn).flatten(1) for vectors in (seen, *residual)])
        turned, *values = (torch.cat(part) for part in zip(*parts, strict=True))
        return turned, values


class _Seen(NamedTuple):
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


def _ridge(
    f: Tensor, values: list[Tensor], f_val: Tensor, aims: list[Tensor]
) -> list[tuple[float, Tensor]]:
    """For each kind of values the lowest error of any penalty on `f_val`, and its weights."""
    size, axes = torch.linalg.eigh(f.mT @ f)
    f, f_val = f @ axes, f_val @ axes
    found = []
    for y, aim in zip(values, aims, strict=True):
        fy = f.mT @ y
        weights = [fy / (size.clamp(min=0) + p)[:, None] for p in PENALTIES]
        error, w = best((float((f_val @ w - aim).square().mean()), w) for w in weights)
        found.append((error, axes @ w))
    return found


def _typical_gap(centres: Tensor, windows: Tensor) -> Tensor:
    """The median of the squared distances of centres, or something if most are the same."""
    rows, columns = torch.triu_indices(len(centres), len(centres), offset=1)
    least = 1e-3 * windows.square().sum(1).mean().clamp(min=1e-30)
    if len(rows) == 0:
        return least
    return gaps(centres, centres)[rows, columns].median().clamp(min=least)


def gaussians(windows: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """exp(-|window - centre|^2 / width), (W, C)."""
    return (-gaps(windows, centres) / width).exp()


def gaps(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of all pairs of rows, (W, C)."""
    # (Rows are about 0: dot products round by no more than a share of what rows differ by.)
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return (squares - 2 * a @ b.mT).clamp(min=0.0)


def _level(vectors: Tensor, up: Tensor) -> Tensor:
    """Vectors (B, A, n) less what of them points along up, (B, n, 1)."""
    return vectors - (vectors @ up) * up.mT


def _unit(m: Tensor) -> Tensor:
    """Matrices (B, n, n) over their size; 0 stays 0."""
    m = m / m.abs().amax((1, 2), keepdim=True).clamp(min=1e-30)  # (squares would overflow)
    return m / m.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-30)


def _nearest_rotation(m: Tensor) -> Tensor:
    """U V^T of m = U S V^T, (B, n, n): of m = A^T B, what turns A into B (Schoenemann 1966).

    By Newton and Schulz's iteration, x (3 - x^T x) / 2, which takes singular values to 1, but not
    those that are 0: what has no direction is given none, where U and V would be arbitrary.
    """
    x = _unit(m)
    for _ in range(ITERATIONS):
        x = 1.5 * x - 0.5 * x @ (x.mT @ x)
    return x


def _in_full_precision(device: str) -> AbstractContextManager[None]:
    """Mixed precision is not for sums of large weights of both signs."""
    mixed = torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if mixed else nullcontext()
