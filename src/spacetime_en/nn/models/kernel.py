"""Kernel regression on whole motions: what did a body that moved like this do next?

Windows are rotated to fit a template, the mean of the training windows aligned in the same way
(generalised Procrustes analysis). The residuals of the nodes from the straight line are a smooth
function of the aligned window, a sum of Gaussians centred on training windows, and are rotated
back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.geometry import NAMED_NODES, Symmetries
from spacetime_en.graph import Forecast, SpacetimeGraph
from spacetime_en.metrics import errors
from spacetime_en.nn.forecaster import Examples
from spacetime_en.nn.models.regression import Regression, Residuals, Start, best
from spacetime_en.nn.models.tree import Joints, Tree
from spacetime_en.nn.requirements import check_dims, check_no_box, check_nodes
from spacetime_en.nn.state import require_up

STEP_WEIGHT = 3.0  # of steps from frame to frame, relative to positions, when comparing windows
WIDTHS = (1.0, 3.0, 10.0, 30.0)  # squared, relative to the median squared distance
KERNEL_PENALTIES = tuple(10.0 ** (k / 2) for k in range(-12, 1))
MAX_NUMBERS = 200_000_000  # elements of the centres
ITERATIONS = 30  # for singular values down to 1e-5 of the largest; less is float32 rounding
MAX_WINDOWS = 20_000  # to fit
PROCRUSTES_ROUNDS = 10  # of aligning windows with their mean


class Kernel(Regression):
    """Gaussian kernel regression for nodes with an identity, such as the joints of a body.

    Args:
        nodes: number N of nodes.
        frames: number L of frames.
        dims: number n of space dimensions.
        parents: the tree of bones, see :class:`~spacetime_en.nn.models.tree.Tree`.
        centres: the maximum number of training windows on which Gaussians are centred.
        mirrored: make forecasts commute with swapping left and right limbs.
        up: align windows only by rotations about the direction ``up`` of the graphs.
        targets: number T of target times, each with its own weights.
    """

    template: Tensor  # of the A = (L + 1) N vectors that describe a window, (A, n)
    mean: Tensor  # of the aligned windows, (A n)
    centres: Tensor  # aligned windows minus their mean, (C, A n)
    width: Tensor  # of the Gaussians, squared

    def __init__(
        self,
        nodes: Joints,
        frames: PositiveInt = 10,
        dims: PositiveInt = 3,
        parents: list[int] | None = None,
        centres: PositiveInt = 2000,
        mirrored: bool = True,
        up: bool = False,
        targets: PositiveInt = 1,
    ) -> None:
        super().__init__()
        self.tree = Tree(parents, nodes, mirrored)
        vectors = (frames + 1) * nodes
        if centres * vectors * dims > MAX_NUMBERS:
            raise InputError(
                f"centres: {centres} windows of {nodes} nodes and {frames} frames are "
                f"{centres * vectors * dims:,} numbers, more than {MAX_NUMBERS:,}; take fewer "
                "windows (a body: memory=0)."
            )
        self.register_buffer("template", torch.zeros(vectors, dims))
        self.register_buffer("mean", torch.zeros(vectors * dims))
        self.register_buffer("centres", torch.zeros(centres, vectors * dims))
        self.register_buffer("width", torch.ones(()))
        # Unfitted, the straight line.
        self.position = nn.Parameter(torch.zeros(centres, targets * nodes * dims))
        self.velocity = nn.Parameter(torch.zeros(centres, targets * nodes * dims))

    @property
    def symmetries(self) -> Symmetries:
        return NAMED_NODES

    def forecast(self, graph: SpacetimeGraph) -> Forecast:
        with _in_full_precision(graph.x.device.type):
            return self.tree.both_sides(super().forecast, graph)

    def residual(self, start: Start) -> Residuals:
        descriptors = self._descriptors(start)
        rotation = self._alignment(start.graph, descriptors, self.template)
        aligned = (descriptors @ rotation).flatten(1) - self.mean
        kernel = gaussians(aligned, self.centres, self.width)  # (B, C)
        sums = (kernel @ w for w in (self.position, self.velocity))
        back = rotation.mT.unsqueeze(1)
        return Residuals(*(t.unflatten(1, (-1, *start.x.shape[1:])) @ back for t in sums))

    def _descriptors(self, start: Start) -> Tensor:
        """The vectors that describe a window: steps, `ahead` and the pose, (B, A, n)."""
        check_nodes(start.graph, self.settings["nodes"])
        check_dims(start.graph, self.settings["dims"])
        check_no_box(start.graph, "kernel regression takes offsets from the centroid")
        x, ahead = start.x.unsqueeze(1), start.ahead.unsqueeze(1)  # (B, 1, N, n)
        pose = x - x.mean(2, keepdim=True)
        steps = STEP_WEIGHT * start.state.x.diff(dim=1)  # (B, L - 1, N, n)
        return torch.cat([steps, STEP_WEIGHT * ahead, pose], dim=1).flatten(1, 2)

    def _alignment(self, graph: SpacetimeGraph, descriptors: Tensor, template: Tensor) -> Tensor:
        """The rotations or reflections that best align windows with the template, (B, n, n)."""
        if not self.settings["up"]:
            return _nearest_rotation(descriptors.mT @ template)
        # Up becomes the first axis; the horizontal components determine the others.
        up = require_up(graph).unsqueeze(-1)  # (B, n, 1)
        level = _unit(_horizontal(descriptors, up).mT @ F.pad(template[:, 1:], (1, 0)))
        first = F.pad(up.new_ones(1), (0, up.shape[1] - 1))
        return _nearest_rotation(level + up * first)

    @torch.no_grad()
    def solve(self, train: Examples, val: Examples) -> float:
        """Fit the weights to `train`, with the width and penalty of lowest error on `val`.

        At most `MAX_WINDOWS` training windows are used, evenly spaced.
        """
        val = list(val)
        training, validation = self._examples(self._both_sides(train)), self._examples(val)
        template = self._template(training)
        aligned, values = self._gathered(training, template)
        val_aligned, val_values = self._gathered(validation, template)
        some = evenly_spaced_indices(len(aligned), MAX_WINDOWS)
        aligned, values = aligned[some], [y[some] for y in values]
        mean = aligned.mean(0)
        centres = aligned[evenly_spaced_indices(len(aligned), len(self.centres))] - mean
        typical = _typical_squared_distance(centres, aligned)

        def fitted_with(width: Tensor) -> tuple[float, tuple[Tensor, list[Tensor]]]:
            basis = _Basis(centres, width)
            fits = _ridge(basis(aligned - mean), values, basis(val_aligned - mean), val_values)
            return fits[0][0], (width, [basis.back @ w for _, w in fits])

        _, (width, weights) = best(fitted_with(factor * typical) for factor in WIDTHS)
        for parameter, w in zip((self.position, self.velocity), weights, strict=True):
            parameter.zero_()[: len(w)] = w.to(parameter)
        self.centres.zero_()[: len(centres)] = centres
        for name, value in {"template": template, "mean": mean, "width": width}.items():
            self.get_buffer(name).copy_(value)
        return self._error(val)

    def _error(self, examples: Examples) -> float:
        """The mean squared position error of the forecasts."""
        position = [
            errors(self(graph.to(self.position.dtype)).to(target.x.dtype), target)[0]
            for graph, target in examples
        ]
        return float(torch.cat(position).mean())

    def _both_sides(self, examples: Examples) -> Examples:
        """The examples and, if the tree has sides, their mirror images."""
        for graph, target in examples:
            yield graph, target
            if self.tree.has_sides:
                yield self.tree.mirrored(graph), target.permute(self.tree.mirror)

    def _examples(self, examples: Examples) -> list[_Examples]:
        """The examples whose targets all count."""
        gathered = []
        for start, residuals, mask in self.starts(examples):
            descriptors = self._descriptors(start)
            if mask is not None:
                whole = mask.flatten(1).all(1)
                start = start._replace(graph=start.graph[whole])
                descriptors, residuals = (
                    descriptors[whole],
                    Residuals(*(r[whole] for r in residuals)),
                )
            if len(descriptors):
                gathered.append(_Examples(start.graph, descriptors, *residuals))
        if not gathered:
            raise InputError("windows: in none of them are all nodes there at all target times.")
        return gathered

    def _template(self, examples: list[_Examples]) -> Tensor:
        """The mean of the windows after alignment with it, (A, n)."""
        template = max((self._fullest(e) for e in examples), key=lambda pair: pair[0])[1]
        for _ in range(PROCRUSTES_ROUNDS):
            total = torch.zeros_like(template)
            for graph, descriptors, *_ in examples:
                total += (descriptors @ self._alignment(graph, descriptors, template)).sum(0)
            template = total / sum(len(example.descriptors) for example in examples)
        return template

    def _fullest(self, example: _Examples) -> tuple[float, Tensor]:
        """The window with the largest smallest singular value, and that value.

        A planar window does not determine the alignment of others perpendicular to its plane.
        """
        graph, descriptors, *_ = example
        if not self.settings["up"]:
            least = torch.linalg.svdvals(descriptors)[:, -1]
            return float(least.max()), descriptors[least.argmax()]
        up = require_up(graph).unsqueeze(-1)
        sizes = torch.linalg.svdvals(_horizontal(descriptors, up))
        least = sizes[:, min(sizes.shape[1] - 1, max(0, descriptors.shape[-1] - 2))]
        best = int(least.argmax())
        axes, _ = torch.linalg.qr(torch.cat([up[best], torch.eye(len(up[best])).to(up)], dim=1))
        axes = axes * torch.where((axes[:, :1] * up[best]).sum() < 0, -1.0, 1.0)
        return float(least[best]), descriptors[best] @ axes  # up is the first axis

    def _gathered(self, examples: list[_Examples], template: Tensor) -> tuple[Tensor, list[Tensor]]:
        """All windows aligned, (W, A n), and their residuals of x and of v, (W, T N n) each."""
        parts = []
        for graph, descriptors, *residual in examples:
            rotation = self._alignment(graph, descriptors, template)
            values = [(r @ rotation.unsqueeze(1)).flatten(1) for r in residual]
            parts.append([(descriptors @ rotation).flatten(1), *values])
        aligned, *values = (torch.cat(part) for part in zip(*parts, strict=True))
        return aligned, values


class _Examples(NamedTuple):
    """Windows to fit, with their descriptors (B, A, n) and residuals of x and v (B, T, N, n)."""

    graph: SpacetimeGraph
    descriptors: Tensor
    x: Tensor
    v: Tensor


class _Basis:
    """Combinations of Gaussians that are orthonormal in the kernel's norm.

    Ridge regression on them is kernel ridge regression with Gaussians on a subset of the windows.

    Args:
        centres: (C, A n).
        width: of the Gaussians, squared.
    """

    def __init__(self, centres: Tensor, width: Tensor) -> None:
        self.centres, self.width = centres, width
        size, axes = torch.linalg.eigh(gaussians(centres, centres, width))
        kept = size > 1e-12 * size[-1]
        self.back = axes[:, kept] / size[kept].sqrt()  # from the basis to Gaussians

    def __call__(self, windows: Tensor) -> Tensor:
        functions: Tensor = gaussians(windows, self.centres, self.width) @ self.back
        return functions


def _ridge(
    f: Tensor, values: list[Tensor], val_f: Tensor, val_values: list[Tensor]
) -> list[tuple[float, Tensor]]:
    """Ridge regressions of values on f: for each, the lowest validation error and its weights."""
    size, axes = torch.linalg.eigh(f.mT @ f)
    f, val_f = f @ axes, val_f @ axes
    fits = []
    for y, val_y in zip(values, val_values, strict=True):
        fy = f.mT @ y
        weights = [fy / (size.clamp(min=0) + p)[:, None] for p in KERNEL_PENALTIES]
        error, w = best((float((val_f @ w - val_y).square().mean()), w) for w in weights)
        fits.append((error, axes @ w))
    return fits


def _typical_squared_distance(centres: Tensor, windows: Tensor) -> Tensor:
    """The median squared distance of two centres, bounded below in case most are equal."""
    rows, columns = torch.triu_indices(len(centres), len(centres), offset=1)
    least = 1e-3 * windows.square().sum(1).mean().clamp(min=1e-30)
    if len(rows) == 0:
        return least
    return squared_distances(centres, centres)[rows, columns].median().clamp(min=least)


def gaussians(windows: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """exp(-|window - centre|^2 / width), (W, C)."""
    return (-squared_distances(windows, centres) / width).exp()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of all pairs of rows, (W, C)."""
    # (Rows are centred at 0, so that rounding errors of the products stay small.)
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return (squares - 2 * a @ b.mT).clamp(min=0.0)


def _horizontal(vectors: Tensor, up: Tensor) -> Tensor:
    """Vectors (B, A, n) without their components along up, (B, n, 1)."""
    return vectors - (vectors @ up) * up.mT


def _unit(m: Tensor) -> Tensor:
    """Matrices (B, n, n) divided by their norm; 0 stays 0."""
    m = m / m.abs().amax((1, 2), keepdim=True).clamp(min=1e-30)  # (squares would overflow)
    return m / m.square().sum((1, 2), keepdim=True).sqrt().clamp(min=1e-30)


def _nearest_rotation(m: Tensor) -> Tensor:
    """U V^T of m = U S V^T, (B, n, n): for m = A^T B, it rotates A onto B (Schönemann 1966).

    By the Newton-Schulz iteration, x (3 - x^T x) / 2, which takes all singular values to 1 except
    those that are 0: there U and V are arbitrary, and the result is 0 in these directions.
    """
    x = _unit(m)
    for _ in range(ITERATIONS):
        x = 1.5 * x - 0.5 * x @ (x.mT @ x)
    return x


def _in_full_precision(device: str) -> AbstractContextManager[None]:
    """Switch off mixed precision, in which sums of large weights of both signs lose accuracy."""
    mixed = torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if mixed else nullcontext()
