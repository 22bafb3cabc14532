"""How far a forecast is from the truth."""

import numpy as np
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast


def mse(forecast: Tensor, target: Tensor, node_mask: Tensor | None = None) -> Tensor:
    """Mean squared error of each graph over its nodes and coordinates, (B, N, n) -> (B,)."""
    square = (forecast - target).square().mean(-1)  # (B, N)
    if node_mask is None:
        return square.mean(1)
    nodes = node_mask.to(square.dtype)
    return (square * nodes).sum(1) / nodes.sum(1)


def errors(
    forecast: Forecast, target: Forecast, node_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The position MSE and the velocity MSE of each graph, each (B,)."""
    return mse(forecast.x, target.x, node_mask), mse(forecast.v, target.v, node_mask)


def predicted_and_actual_mse(
    forecast: Forecast, target: Forecast, node_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The mean squared error of each node, by the forecast's own account and in truth, (nodes,).

    Nodes of which the forecast does not say, NaN, are left out.
    """
    if forecast.spread is None:
        raise InputError("forecast: has no spread, it says nothing of its own errors.")
    said, found = forecast.spread.square(), (forecast.x - target.x).square().mean(-1)
    known = said.isfinite() if node_mask is None else said.isfinite() & node_mask
    return said[known], found[known]


def calibration(said: Tensor, found: Tensor, groups: int) -> list[dict[str, float]]:
    """What forecasts say of their errors beside what they are, from the surest to the least sure.

    Nodes are sorted by what is said, and cut into groups of equal size. Whoever knows what he does
    not know is as far off in each of them as he says.

    Args:
        said, found: mean squared errors of nodes, see :func:`predicted_and_actual_mse`.
        groups: how many.
    Returns: ``said`` and ``found`` of each group, as roots of the mean.
    """
    order = said.argsort()
    parts = (t[order].tensor_split(groups) for t in (said, found))
    return [
        {"said": float(s.mean().sqrt()), "found": float(f.mean().sqrt())}
        for s, f in zip(*parts, strict=True)
        if len(s)
    ]


def summary(values: Tensor) -> dict[str, float]:
    """Mean, median and 90th percentile: errors are heavy-tailed, one number does not tell."""
    array = values.double().cpu().numpy()  # (torch.quantile takes 16 million values at most)
    median, p90 = np.quantile(array, (0.5, 0.9))
    return {"mean": float(array.mean()), "median": float(median), "p90": float(p90)}
