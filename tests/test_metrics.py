import pytest
import torch

from spacetime_en import Forecast, InputError
from spacetime_en.metrics import calibration, errors, mse, predicted_and_actual_mse, summary


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


def test_calibration_compares_what_is_said_with_what_is_found():
    g = torch.Generator().manual_seed(0)
    spread = torch.rand(400, 5, generator=g) + 0.1
    x = spread[..., None] * torch.randn(400, 5, 3, generator=g)
    v = torch.zeros_like(x)
    truth = Forecast(torch.zeros_like(x), v)
    right = calibration(*predicted_and_actual_mse(Forecast(x, v, spread), truth), groups=5)
    assert [row["actual"] for row in right] == pytest.approx(
        [row["predicted"] for row in right], rel=0.1
    )
    assert [row["predicted"] for row in right] == sorted(row["predicted"] for row in right)
    sure = calibration(*predicted_and_actual_mse(Forecast(x, v, spread / 2), truth), groups=5)
    assert sure[2]["actual"] == pytest.approx(2 * sure[2]["predicted"], rel=0.1)
    # Padding does not count, nor nodes of which nothing is said.
    mask = torch.rand(400, 5, generator=g) < 0.5
    said, found = predicted_and_actual_mse(Forecast(x, v, spread), truth, mask)
    assert len(said) == len(found) == int(mask.sum())
    said, _ = predicted_and_actual_mse(Forecast(x, v, spread.masked_fill(mask, torch.nan)), truth)
    assert len(said) == int((~mask).sum())
    with pytest.raises(InputError, match="has no spread"):
        predicted_and_actual_mse(Forecast(x, v), truth)
