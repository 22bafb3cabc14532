"""How far a forecast is from the truth.

MSE is per coordinate throughout this package: the mean of (x - x_true)^2 over coordinates as well,
that is, the mean squared distance divided by n. ADE and FDE are distances, as usual: the average
displacement error is the mean distance over all target times and nodes, the final displacement
error the mean distance over all nodes at the last target time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast


def both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Where both masks are True; None stands for a mask that is True everywhere."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def mse(forecast: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean squared error per coordinate, for each graph, over times and nodes.

    Args:
        forecast, target: (B, T, N, n).
        mask: what counts, (B, T, N); None: all.
    Returns: (B,); 0 for a graph in which nothing counts.
    """
    difference = forecast - target
    if mask is None:
        return difference.square().mean(-1).mean((1, 2))
    # (Masked before squaring: where a target is NaN, the gradient would be NaN, too.)
    difference = difference.masked_fill(~mask.unsqueeze(-1), 0.0)
    return difference.square().mean(-1).sum((1, 2)) / mask.sum((1, 2)).clamp(min=1)


def errors(forecast: Forecast, target: Forecast) -> tuple[Tensor, Tensor]:
    """The position MSE and the velocity MSE of each graph, each (B,), per coordinate."""
    mask = both(forecast.mask, target.mask)
    return mse(forecast.x, target.x, mask), mse(forecast.v, target.v, mask)


def displacements(x: Tensor, target: Tensor) -> Tensor:
    """The distances of nodes from their targets, (B, T, N, n) -> (B, T, N)."""
    distances: Tensor = torch.linalg.vector_norm(x - target, dim=-1)
    return distances


def ade(forecast: Forecast, target: Forecast) -> Tensor:
    """Average displacement error: the mean distance over all nodes and times that count, ()."""
    distances, counts = _counted(forecast, target)
    return distances[counts].mean()


def fde(forecast: Forecast, target: Forecast) -> Tensor:
    """Final displacement error: the ADE at the last target time alone, ()."""
    distances, counts = _counted(forecast, target)
    return distances[:, -1][counts[:, -1]].mean()


def best_of(forecast: Forecast, target: Forecast, k: int) -> tuple[Tensor, Tensor]:
    """Minimum ADE and minimum FDE of each node over the first k samples.

    The minima are taken separately, as is customary, and may come from different samples.

    Returns: (B, N) each; NaN where a node never counts, or does not count at the last time.
    """
    if forecast.samples is None:
        raise InputError("forecast: has no samples to choose the best of.")
    _, counts = _counted(forecast, target)
    distances = displacements(forecast.samples[:, :k], target.x.unsqueeze(1))  # (B, k, T, N)
    distances = distances.masked_fill(~counts.unsqueeze(1), 0.0)
    times = counts.sum(1)  # (B, N)
    mean, last = distances.sum(2).amin(1) / times, distances[:, :, -1].amin(1)
    return mean, last.masked_fill(~counts[:, -1], torch.nan)


def _counted(forecast: Forecast, target: Forecast) -> tuple[Tensor, Tensor]:
    """The distances of nodes from their targets, and which of them count, (B, T, N) each."""
    distances = displacements(forecast.x, target.x)
    mask = both(forecast.mask, target.mask)
    if mask is None:
        mask = torch.ones_like(distances, dtype=torch.bool)
    return distances, mask.expand_as(distances)


@dataclass(frozen=True)
class PathErrors:
    """Distances of forecast paths from the true ones: P nodes of any number of graphs, T times.

    Args:
        distances: between forecast and truth, (P, T).
        counts: which of them count, (P, T); every node does for at least one time.
        dims: n, the number of coordinates.
        best: the minimum ADE and FDE of each node over `k` samples, (P, 2); None for forecasts
            without samples.
        k: the number of samples.
    """

    distances: Tensor
    counts: Tensor
    dims: int
    best: Tensor | None = None
    k: int = 0

    @classmethod
    def of(cls, forecast: Forecast, target: Forecast, k: int = 20) -> PathErrors:
        """The errors of a batch; for forecasts with samples, also the best of the first `k`."""
        distances, counts = (t.transpose(1, 2) for t in _counted(forecast, target))  # (B, N, T)
        nodes, dims = counts.any(2), forecast.x.shape[-1]
        if forecast.samples is None:
            return cls(distances[nodes], counts[nodes], dims)
        k = min(k, forecast.samples.shape[1])
        best = torch.stack(best_of(forecast, target, k), dim=-1)
        return cls(distances[nodes], counts[nodes], dims, best[nodes], k)

    @classmethod
    def join(cls, parts: Sequence[PathErrors]) -> PathErrors:
        """The errors of all nodes of several batches."""
        first = parts[0]
        distances = torch.cat([part.distances for part in parts])
        counts = torch.cat([part.counts for part in parts])
        best = [part.best for part in parts if part.best is not None]
        return cls(distances, counts, first.dims, torch.cat(best) if best else None, first.k)

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def ade(self) -> float:
        """The mean distance over all nodes and times that count."""
        return float(self.distances[self.counts].mean())

    @property
    def fde(self) -> float | None:
        """The mean distance at the last time; None if no node counts then."""
        return _mean(self.distances[:, -1][self.counts[:, -1]])

    def of_nodes(self) -> dict[str, dict[str, float]]:
        """The distribution over nodes of their own ADE and FDE, see :func:`summary`."""
        times = self.counts.sum(1)
        means = self.distances.masked_fill(~self.counts, 0.0).sum(1) / times
        last = self.distances[:, -1][self.counts[:, -1]]
        return {"ade": summary(means)} | ({"fde": summary(last)} if len(last) else {})

    def against_time(self) -> list[dict[str, Any]]:
        """For each target time: the mean distance, the MSE, and the number of nodes that count.

        The MSE is per coordinate, and over nodes: windows are weighted by their number of nodes.
        """
        rows = []
        for distances, counts in zip(self.distances.T, self.counts.T, strict=True):
            counted = distances[counts]
            square = _mean(counted.square())
            rows.append(
                {
                    "mean_distance": _mean(counted),
                    "position_mse": None if square is None else square / self.dims,
                    "nodes": len(counted),
                }
            )
        return rows

    def best_of(self) -> dict[str, Any] | None:
        """``k``, and the ``ade`` and ``fde`` of the best of k samples, see :func:`best_of`.

        In the ADE, nodes are weighted by the number of times at which they count, as for a single
        forecast.
        """
        if self.best is None:
            return None
        times = self.counts.sum(1)
        least = float((self.best[:, 0] * times).sum() / times.sum())
        return {"k": self.k, "ade": least, "fde": _mean(self.best[self.counts[:, -1], 1])}


def _mean(values: Tensor) -> float | None:
    """The mean, or None if there are no values."""
    return float(values.mean()) if len(values) else None


def predicted_and_actual_mse(forecast: Forecast, target: Forecast) -> tuple[Tensor, Tensor]:
    """The mean squared error of each node and time, as predicted by the forecast and as found.

    Those without a finite prediction are left out.

    Returns: (M,) each.
    """
    if forecast.spread is None:
        raise InputError("forecast: has no spread, and so predicts no errors.")
    predicted, actual = forecast.spread.square(), (forecast.x - target.x).square().mean(-1)
    mask = both(forecast.mask, target.mask)
    stated = predicted.isfinite() if mask is None else predicted.isfinite() & mask
    return predicted[stated], actual[stated]


def calibration(predicted: Tensor, actual: Tensor, groups: int) -> list[dict[str, float]]:
    """Predicted and actual errors, from the most to the least certain forecasts.

    Nodes are sorted by their predicted error and split into groups of equal size. For a calibrated
    model, the two errors agree in each group.

    Args:
        predicted, actual: squared errors of nodes, see :func:`predicted_and_actual_mse`.
        groups: the number of groups.
    Returns: for each group ``predicted`` and ``actual``, as root mean squares.
    """
    order = predicted.argsort()
    parts = (t[order].tensor_split(groups) for t in (predicted, actual))
    return [
        {"predicted": float(p.mean().sqrt()), "actual": float(a.mean().sqrt())}
        for p, a in zip(*parts, strict=True)
        if len(p)
    ]


def standard_deviation(x: Tensor) -> Tensor:
    """The standard deviation of a coordinate over samples, (B, S, T, N, n) -> (B, T, N)."""
    # (No Bessel correction: our samples are the distribution, not draws from it.)
    return (x.var(1, correction=0).mean(-1) + 1e-30).sqrt()


def energy_score(z: Tensor, y: Tensor) -> Tensor:
    """The energy score of samples z (B, S, ..., c) for the observation y (B, ..., c), (B, ...).

    Gneiting and Raftery (2007), Eq. 22, for the distribution that gives each sample the weight
    1/S. (With S (S - 1) pairs, as for independent samples, two of them could drift apart
    indefinitely at no cost.)
    """
    to_target = _length(z - y[:, None]).mean(1)
    to_each_other = _length(z[:, :, None] - z[:, None]).mean((1, 2))
    return to_target - to_each_other / 2


def _length(t: Tensor) -> Tensor:
    return (t.square().sum(-1) + 1e-12).sqrt()  # (differentiable at 0)


def summary(values: Tensor) -> dict[str, float]:
    """Mean, median and 90th percentile: errors are heavy-tailed, and one number is not enough.

    For two or more values also the ``standard_error`` of the mean, as if they were independent:
    overlapping windows, or nodes of one window, are not, and their mean is less certain.
    """
    array = values.double().cpu().numpy()  # (torch.quantile takes 16 million values at most)
    median, p90 = np.quantile(array, (0.5, 0.9))
    found = {"mean": float(array.mean()), "median": float(median), "p90": float(p90)}
    if len(array) > 1:
        with np.errstate(invalid="ignore", over="ignore"):  # (NaN for infinite errors)
            found["standard_error"] = float(array.std(ddof=1) / np.sqrt(len(array)))
    return found
