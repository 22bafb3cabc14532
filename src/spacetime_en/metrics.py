"""How far a forecast is from the truth."""

import numpy as np
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en.graph import Forecast


def both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Where both masks are True; None stands for a mask that is True everywhere."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def mse(forecast: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean squared error per coordinate of each graph, over times and nodes.

    Args:
        forecast, target: (B, T, N, n).
        mask: what counts, (B, T, N); None: all.
    Returns: (B,); 0 for a graph in which nothing counts.
    """
    difference = forecast - target
    if mask is None:
        return difference.square().mean(-1).mean((1, 2))
    # (Masked before it is squared: where a target is NaN, the gradient would be NaN, too.)
    difference = difference.masked_fill(~mask.unsqueeze(-1), 0.0)
    return difference.square().mean(-1).sum((1, 2)) / mask.sum((1, 2)).clamp(min=1)


def errors(forecast: Forecast, target: Forecast) -> tuple[Tensor, Tensor]:
    """The position MSE and the velocity MSE of each graph, each (B,)."""
    mask = both(forecast.mask, target.mask)
    return mse(forecast.x, target.x, mask), mse(forecast.v, target.v, mask)


def predicted_and_actual_mse(forecast: Forecast, target: Forecast) -> tuple[Tensor, Tensor]:
    """The mean squared error of each node and time, as the forecast predicts it and as it is.

    Those for which the predicted one is NaN are left out.

    Returns: (M,) each.
    """
    if forecast.spread is None:
        raise InputError("forecast: has no spread, and so predicts no errors.")
    predicted, actual = forecast.spread.square(), (forecast.x - target.x).square().mean(-1)
    mask = both(forecast.mask, target.mask)
    stated = predicted.isfinite() if mask is None else predicted.isfinite() & mask
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
