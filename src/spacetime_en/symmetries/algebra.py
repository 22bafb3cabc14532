"""The Lie algebra of a fitted law: generators that commute with it, found without candidates.

A forecaster f that knows nothing of symmetries is fitted to the residuals from the straight line. A
generator acts on whole windows, z -> z + eps g z, for g = (A, b, w): x -> A x + b + w t, v -> A v +
w. It is a symmetry of f where

    L_g f(z) = D f(z)[g z] - A f(z)

vanishes (the idea of LieGG for networks; Moskalev et al. 2022). L_g is linear in g, so that the
squared norms E|L_g f|^2 / E|f|^2 are a quadratic form on all generators; its null space is the
algebra. Two fits on halves of the recordings, one for each factor, keep the noise of f out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.symmetries.questions import bounded
from spacetime_en.symmetries.rows import Array, Rows, Sampled, describe, rows_of_windows

HALVINGS_OF_FITS = 6
ACTED_ON = 300  # windows that generators act on
STEP = 1e-4
PENALTY = 1e-4
LEAST_ALIKE = 0.1  # cosine similarity of fits on two halves of the recordings
COMMUTES = 0.05  # a generator that changes forecasts by less, relative to their size, is a symmetry


@dataclass(frozen=True)
class Algebra:
    """The algebra found.

    Args:
        values: the singular values of g -> L_g f, increasing, (g,): by how much each generator
            changes forecasts, relative to their size.
        errors: their standard errors over halvings of the recordings, (g,).
        shares: the composition of the null space, by kind: the number of dimensions of each.
        dimensions: of all generators of each kind.
        words: the algebra's name.
    """

    values: tuple[float, ...]
    errors: tuple[float, ...]
    shares: dict[str, float]
    dimensions: dict[str, int]
    words: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "singular_values": list(self.values),
            "errors": list(self.errors),
            "null_space": self.shares,
            "dimensions": self.dimensions,
            "words": self.words,
        }


@dataclass(frozen=True)
class Generator:
    """x -> A x + b + w t and v -> A v + w, and the kind of motion."""

    kind: str
    A: Array
    b: Array
    w: Array


def generators(n: int, length: float, speed: float) -> list[Generator]:
    """An orthonormal basis of generators: rotations, scaling, shears, translations and boosts.

    Args:
        n: dimensions of space.
        length, speed: of a translation and a boost of norm 1.
    """
    zero, none = np.zeros((n, n)), np.zeros(n)
    found = []
    unit = np.eye(n)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    for i, j in pairs:
        turn = np.outer(unit[i], unit[j]) - np.outer(unit[j], unit[i])
        found.append(Generator("rotation", turn / np.sqrt(2), none, none))
    found.append(Generator("scaling", np.eye(n) / np.sqrt(n), none, none))
    for i, j in pairs:
        shear = np.outer(unit[i], unit[j]) + np.outer(unit[j], unit[i])
        found.append(Generator("shear", shear / np.sqrt(2), none, none))
    for k in range(1, n):
        diagonal = np.array([1.0] * k + [-float(k)] + [0.0] * (n - k - 1))
        stretch = np.diag(diagonal / np.linalg.norm(diagonal))
        found.append(Generator("shear", stretch, none, none))
    found += [Generator("translation", zero, length * e, none) for e in unit]
    found += [Generator("boost", zero, none, speed * e) for e in unit]
    return found


def acted(graph: SpacetimeGraph, g: Generator, step: float) -> SpacetimeGraph:
    """Windows moved by a small step along a generator."""
    A, b, w = (torch.from_numpy(step * t) for t in (g.A, g.b, g.w))
    time = -graph.since[..., None, None]
    x = graph.x + graph.x @ A.mT + b + time * w
    return graph.replace(x=x, v=graph.v + graph.v @ A.mT + w)


class _Functions:
    """Components of vectors and positions, and their products with logarithms of lengths."""

    def __init__(self, vectors: Array, position: Array) -> None:
        both = np.concatenate([vectors, position[:, None]], axis=1)
        self.size = np.maximum(np.sqrt(np.square(both).mean((0, 2))), 1e-300)  # (K + 1,)

    def __call__(self, vectors: Array, position: Array) -> Array:
        both = np.concatenate([vectors, position[:, None]], axis=1) / self.size[:, None]
        R, K, n = both.shape
        flat = both.reshape(R, K * n)
        lengths = np.log1p(np.square(both).sum(2))  # smooth, unlike the length itself
        products = np.einsum("rp,rk->rpk", flat, lengths).reshape(R, -1)
        return np.concatenate([np.ones((R, 1)), flat, products], axis=1)


def algebra_of(sampled: Sampled, unit: float) -> Algebra | None:
    """Fit a law to the windows, and find the generators that it commutes with.

    Returns: None if fits on halves of the recordings have nothing in common: there is no law.
    """
    graph = sampled.graph.to(torch.float64).unwrapped()
    rows = rows_of_windows(sampled, unit)
    rows = replace(rows, residual=bounded(rows.residual))
    centre = torch.from_numpy(rows.position.mean(0))
    functions = _Functions(rows.vectors, rows.position - centre.numpy())
    probed = graph[evenly_spaced_indices(len(graph), ACTED_ON)]
    there = torch.ones(probed.x.shape[0], probed.x.shape[2], dtype=torch.bool)
    there = there if probed.observed is None else probed.observed.all(1)
    probed = probed.replace(x=probed.x - centre)

    def basis(windows: SpacetimeGraph) -> Array:
        vectors, _, _ = describe(windows, unit)
        return functions(vectors[there].numpy(), windows.x[:, -1][there].numpy())

    length = float((rows.position - centre.numpy()).std())
    fast = float(np.sqrt(np.square(probed.v[:, -1][there].numpy()).mean()))
    every = generators(rows.dims, max(length, 1e-12), max(fast, 1e-12))
    here = basis(probed)
    slopes = [
        (basis(acted(probed, g, STEP)) - basis(acted(probed, g, -STEP))) / (2 * STEP) for g in every
    ]
    fitted = functions(rows.vectors, rows.position - centre.numpy())
    forms, shared, alike = [], [], []
    for halving in range(HALVINGS_OF_FITS):
        weights = _fits_of_halves(fitted, rows, halving)
        first, second = (here @ w for w in weights)
        shared.append(float(np.sum(first * second)))
        alike.append(
            shared[-1] / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-300)
        )
        changes = [
            np.stack([slope @ w - here @ w @ g.A.T for slope, g in zip(slopes, every, strict=True)])
            for w in weights
        ]
        form = np.einsum("grn,hrn->gh", *changes)
        forms.append((form + form.T) / 2)
    if np.mean(alike) < LEAST_ALIKE:
        return None
    forms = [form / np.mean(shared) for form in forms]
    values, directions = np.linalg.eigh(np.mean(forms, axis=0))
    spread = np.std([np.einsum("gk,gh,hk->k", directions, f, directions) for f in forms], axis=0)
    errors = spread / np.sqrt(HALVINGS_OF_FITS)
    sizes = np.sqrt(np.maximum(values, 0))
    null = directions[:, values < COMMUTES**2 + 2 * errors]
    kinds = [g.kind for g in every]
    shares = {
        kind: float(np.square(null[[k == kind for k in kinds]]).sum())
        for kind in dict.fromkeys(kinds)
    }
    counts = {kind: kinds.count(kind) for kind in shares}
    return Algebra(
        tuple(sizes.tolist()),
        tuple((errors / (2 * np.maximum(sizes, np.sqrt(errors) + 1e-12))).tolist()),
        shares,
        counts,
        _named(shares, counts, every, null, rows.dims),
    )


def _fits_of_halves(fitted: Array, rows: Rows, seed: int) -> list[Array]:
    """Ridge regressions of the residual on the basis for two halves of the groups, (p, n) each."""
    half = np.random.default_rng(seed).permutation(rows.groups.count) % 2 == 0
    weights = []
    for part in (half[rows.group], ~half[rows.group]):
        b = fitted[part]
        scale = np.maximum(np.sqrt(np.square(b).mean(0)), 1e-300)
        b = b / scale
        gram = b.T @ b + PENALTY * len(b) * np.eye(b.shape[1])
        weights.append(np.linalg.solve(gram, b.T @ rows.residual[part]) / scale[:, None])
    return weights


def _named(
    shares: dict[str, float], counts: dict[str, int], every: list[Generator], null: Array, n: int
) -> str:
    """The name of the null space."""
    parts = []
    turning = round(shares.get("rotation", 0.0))  # (a line has no rotations, and no shears)
    if n > 1 and turning == counts["rotation"]:
        parts.append(f"so({n})")
    elif turning == 1 and n == 3:
        turns = [g.A for g in every if g.kind == "rotation"]
        inside = null[: len(turns)]
        left, _, _ = np.linalg.svd(inside)
        A = np.einsum("g,gij->ij", left[:, 0], np.stack(turns))
        axis = np.array([A[2, 1], A[0, 2], A[1, 0]])
        axis = axis / np.linalg.norm(axis) * np.sign(axis[np.abs(axis).argmax()])
        parts.append("so(2) about (" + ", ".join(f"{a:.2f}" for a in axis + 0.0) + ")")
    for kind, what in (("translation", "translations"), ("boost", "boosts")):
        found = round(shares[kind])
        if found:
            whole = f"all {what}" if found == counts[kind] else f"{what} in {found} directions"
            parts.append(whole)
    if shares["scaling"] > 0.5:
        parts.append("scaling")
    if shares.get("shear", 0.0) > 0.5:
        parts.append(f"{round(shares['shear'])} shears")
    return ", ".join(parts) or "none"
