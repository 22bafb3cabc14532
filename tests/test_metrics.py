import pytest
import torch

from spacetime_en import Forecast, InputError
from spacetime_en.metrics import calibration, errors, mse, predicted_and_actual_mse, summary


def test_mean_median_and_90th_percentile():
    values = torch.tensor([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0, 110.0])
    assert summary(values) == pytest.approx({"mean": 165 / 11, "median": 6.0, "p90": 10.0})


def test_missing_nodes_do_not_count():
    forecast, target = torch.zeros(2, 1, 3, 2), torch.ones(2, 1, 3, 2)
    target[1, 0, 2] = 100.0
    mask = torch.tensor([[[True, True, True]], [[True, True, False]]])
    assert mse(forecast, target, mask).tolist() == [1.0, 1.0]
    assert mse(forecast, target)[1] > 1000
    for masks in ((mask, None), (None, mask), (mask, mask | ~mask)):
        found, truth = (
            Forecast(t, 2 * t, mask=m) for t, m in zip((forecast, target), masks, strict=True)
        )
        x, v = errors(found, truth)
        assert (x.tolist(), v.tolist()) == ([1.0, 1.0], [4.0, 4.0])


def test_errors_are_means_over_the_times_and_nodes_that_count():
    g = torch.Generator().manual_seed(0)
    forecast, target = torch.randn(2, 3, 4, 5, 2, generator=g, dtype=torch.float64)
    mask = torch.rand(3, 4, 5, generator=g) < 0.5
    mask[2] = False
    found = mse(forecast, target.masked_fill(~mask[..., None], torch.nan), mask)
    for b in range(2):
        squares = [
            float((forecast[b, t, i] - target[b, t, i]).square().mean())
            for t in range(4)
            for i in range(5)
            if mask[b, t, i]
        ]
        assert found[b].item() == pytest.approx(sum(squares) / len(squares))
    assert found[2] == 0  # nothing counts


def test_targets_that_do_not_count_have_no_gradient():
    forecast = torch.ones(1, 1, 2, 1, requires_grad=True)
    target = torch.tensor([0.0, torch.nan]).view(1, 1, 2, 1)
    mse(forecast, target, ~target.squeeze(-1).isnan()).sum().backward()
    assert forecast.grad.flatten().tolist() == [2.0, 0.0]


def test_calibration_compares_what_is_said_with_what_is_found():
    g = torch.Generator().manual_seed(0)
    spread = torch.rand(400, 1, 5, generator=g) + 0.1
    x = spread[..., None] * torch.randn(400, 1, 5, 3, generator=g)
    v = torch.zeros_like(x)
    truth = Forecast(torch.zeros_like(x), v)
    right = calibration(*predicted_and_actual_mse(Forecast(x, v, spread=spread), truth), groups=5)
    assert [row["actual"] for row in right] == pytest.approx(
        [row["predicted"] for row in right], rel=0.1
    )
    assert [row["predicted"] for row in right] == sorted(row["predicted"] for row in right)
    sure = calibration(
        *predicted_and_actual_mse(Forecast(x, v, spread=spread / 2), truth), groups=5
    )
    assert sure[2]["actual"] == pytest.approx(2 * sure[2]["predicted"], rel=0.1)
    # Padding does not count, nor nodes of which nothing is said.
    mask = torch.rand(400, 1, 5, generator=g) < 0.5
    padded = Forecast(x, v, spread=spread, mask=mask)
    said, found = predicted_and_actual_mse(padded, truth)
    assert len(said) == len(found) == int(mask.sum())
    silent = Forecast(x, v, spread=spread.masked_fill(mask, torch.nan))
    said, _ = predicted_and_actual_mse(silent, truth)
    assert len(said) == int((~mask).sum())
    with pytest.raises(InputError, match="has no spread"):
        predicted_and_actual_mse(Forecast(x, v), truth)
