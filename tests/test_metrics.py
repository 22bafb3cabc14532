import pytest
import torch

from spacetime_en import Forecast
from spacetime_en.metrics import errors, mse, summary


def test_mean_median_and_90th_percentile():
    values = torch.tensor([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0, 110.0])
    assert summary(values) == pytest.approx({"mean": 165 / 11, "median": 6.0, "p90": 10.0})


def test_missing_nodes_do_not_count():
    forecast, target = torch.zeros(2, 3, 2), torch.ones(2, 3, 2)
    target[1, 2] = 100.0
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert mse(forecast, target, mask).tolist() == [1.0, 1.0]
    assert mse(forecast, target)[1] > 1000
    x, v = errors(Forecast(forecast, forecast), Forecast(target, 2 * target), mask)
    assert (x.tolist(), v.tolist()) == ([1.0, 1.0], [4.0, 4.0])
