"""How far a forecast is from the truth."""

import numpy as np
from torch import Tensor

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


def summary(values: Tensor) -> dict[str, float]:
    """Mean, median and 90th percentile: errors are heavy-tailed, one number does not tell."""
    array = values.double().cpu().numpy()  # (torch.quantile takes 16 million values at most)
    median, p90 = np.quantile(array, (0.5, 0.9))
    return {"mean": float(array.mean()), "median": float(median), "p90": float(p90)}
