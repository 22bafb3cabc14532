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
    """The mean squared error of each node, as the forecast predicts it and as it is, (nodes,) each.

    Nodes for which the predicted one is NaN are left out.
    """
    if forecast.spread is None:
        raise InputError("forecast: has no spread, and so predicts no errors.")
    predicted, actual = forecast.spread.square(), (forecast.x - target.x).square().mean(-1)
    stated = predicted.isfinite() if node_mask is None else predicted.isfinite() & node_mask
    return predicted[stated], actual[stated]


def calibration(predicted: Tensor, actual: Tensor, groups: int) -> list[dict[str, float]]:
    """Predicted beside actual errors, from the surest forecasts to the least sure.

    Nodes are sorted by their predicted error, and cut into groups of equal size. Of a calibrated
    model both errors are the same in each of them.

    Args:
        predicted, actual: squared errors of nodes, see :func:`predicted_and_actual_mse`.
        groups: the number of groups.
    Returns: for each group ``predicted`` and ``actual``, as roots of the mean.
    """
    order = predicted.argsort()
    parts = (t[order].tensor_split(groups) for t in (predicted, actual))
    return [
        {"predicted": float(p.mean().sqrt()), "actual": float(a.mean().sqrt())}
        for p, a in zip(*parts, strict=True)
        if len(p)
    ]


def summary(values: Tensor) -> dict[str, float]:
    """Mean, median and 90th percentile: errors are heavy-tailed, and one number does not tell."""
    array = values.double().cpu().numpy()  # (torch.quantile takes 16 million values at most)
    median, p90 = np.quantile(array, (0.5, 0.9))
    return {"mean": float(array.mean()), "median": float(median), "p90": float(p90)}
