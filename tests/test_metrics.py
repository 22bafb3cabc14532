import math

import pytest
import torch

from spacetime_en import Forecast, InputError
from spacetime_en.metrics import (
    PathErrors,
    ade,
    best_of,
    calibration,
    displacements,
    energy_score,
    errors,
    fde,
    mse,
    predicted_and_actual_mse,
    summary,
)


def test_mean_standard_error_median_and_90th_percentile():
    values = torch.tensor([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0, 110.0])
    spread = sum((v - 15) ** 2 for v in values.tolist()) / 10
    assert summary(values) == pytest.approx(
        {"mean": 15.0, "median": 6.0, "p90": 10.0, "standard_error": math.sqrt(spread / 11)}
    )
    assert summary(values[:1]) == {"mean": 5.0, "median": 5.0, "p90": 5.0}  # nothing is known


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


def paths(samples=7, seed=0):
    """Forecasts and targets of five times, in which nodes leave, one at once, and some are NaN."""
    g = torch.Generator().manual_seed(seed)
    B, T, N, n = 3, 5, 4, 2
    x, target, v = torch.randn(3, B, T, N, n, generator=g, dtype=torch.float64)
    drawn = torch.randn(B, samples, T, N, n, generator=g, dtype=torch.float64)
    mask = torch.rand(B, T, N, generator=g) < 0.7
    mask[0, :, 1] = False  # never there
    mask[1, :, 0] = True
    mask[2, -1, 2] = False  # leaves before the end
    target = target.masked_fill(~mask[..., None], torch.nan)
    padding = torch.ones(B, T, N, dtype=torch.bool)
    padding[2, :, 3] = False
    return Forecast(x, v, mask=padding, samples=drawn), Forecast(target, v, mask=mask)


def distance(x, y):
    return math.dist(x.tolist(), y.tolist())


def counted(forecast, target):
    """The places (graph, time, node) that count."""
    both = forecast.mask & target.mask
    return [tuple(place) for place in both.nonzero().tolist()]


def test_ade_and_fde_are_those_of_a_plain_loop():
    forecast, target = paths()
    places = counted(forecast, target)
    found = [distance(forecast.x[place], target.x[place]) for place in places]
    assert float(ade(forecast, target)) == pytest.approx(sum(found) / len(found))
    last = [d for d, (_, t, _) in zip(found, places, strict=True) if t == 4]
    assert 0 < len(last) < len(found)
    assert float(fde(forecast, target)) == pytest.approx(sum(last) / len(last))
    b, t, i = places[0]
    assert float(displacements(forecast.x, target.x)[b, t, i]) == pytest.approx(found[0])
    # MSE is per coordinate: half the mean squared distance in two dimensions.
    one = Forecast(forecast.x[1:2], forecast.v[1:2])
    other = Forecast(torch.zeros_like(one.x), one.v)
    squares = displacements(one.x, other.x).square()
    assert float(errors(one, other)[0]) == pytest.approx(float(squares.mean()) / 2)


def test_the_best_of_k_is_that_of_a_plain_loop():
    forecast, target = paths()
    places = counted(forecast, target)
    for k in (1, 3, 7):
        found_ade, found_fde = best_of(forecast, target, k)
        for b in range(3):
            for i in range(4):
                times = [t for t in range(5) if (b, t, i) in places]
                means, lasts = [], []
                for sample in range(k):
                    x = forecast.samples[b, sample]
                    ds = [distance(x[t, i], target.x[b, t, i]) for t in times]
                    means.append(sum(ds) / len(ds) if ds else math.nan)
                    lasts.append(ds[-1] if 4 in times else math.nan)
                assert float(found_ade[b, i]) == pytest.approx(min(means), nan_ok=True)
                assert float(found_fde[b, i]) == pytest.approx(min(lasts), nan_ok=True)
    with pytest.raises(InputError, match="has no samples"):
        best_of(target, target, 3)


def test_path_errors_of_batches_are_those_of_all():
    forecast, target = paths()
    whole = PathErrors.of(forecast, target, k=3)
    parts = PathErrors.join([PathErrors.of(forecast[i], target[i], k=3) for i in ([0], [1, 2])])
    assert torch.equal(whole.counts, parts.counts)
    assert torch.equal(whole.best.nan_to_num(-1), parts.best.nan_to_num(-1))
    assert parts.ade == pytest.approx(float(ade(forecast, target)))
    assert parts.fde == pytest.approx(float(fde(forecast, target)))
    places = counted(forecast, target)
    nodes = {(b, i) for b, _, i in places}
    assert len(parts) == len(nodes) == 10  # of twelve, one never there and one padding
    for t, row in enumerate(parts.against_time()):
        found = [distance(forecast.x[p], target.x[p]) for p in places if p[1] == t]
        assert row["nodes"] == len(found)
        assert row["mean_distance"] == pytest.approx(sum(found) / len(found))
        assert row["position_mse"] == pytest.approx(sum(d * d for d in found) / len(found) / 2)
    own = [
        sum(ds) / len(ds)
        for b, i in nodes
        if (ds := [distance(forecast.x[p], target.x[p]) for p in places if (p[0], p[2]) == (b, i)])
    ]
    assert parts.of_nodes()["ade"]["mean"] == pytest.approx(sum(own) / len(own))
    assert parts.of_nodes()["fde"]["mean"] == pytest.approx(parts.fde)


def test_one_sample_is_its_own_best():
    forecast, target = paths()
    single = forecast.replace(samples=forecast.x.unsqueeze(1))
    found = PathErrors.of(single, target)
    assert found.best_of() == pytest.approx({"k": 1, "ade": found.ade, "fde": found.fde})
    best = PathErrors.of(forecast, target).best_of()
    assert best["k"] == 7
    assert best["ade"] < PathErrors.of(forecast, target, k=3).best_of()["ade"]
    assert PathErrors.of(target, target).best_of() is None


def test_a_time_at_which_nobody_is_left():
    forecast, target = paths()
    target = target.replace(mask=target.mask & (torch.arange(5) < 4)[:, None])
    found = PathErrors.of(forecast, target)
    assert found.fde is None
    assert "fde" not in found.of_nodes()
    assert found.best_of()["fde"] is None
    assert found.against_time()[-1] == {"mean_distance": None, "position_mse": None, "nodes": 0}
    assert math.isfinite(found.ade)


def test_forecasts_that_are_not_numbers_do_not_hide():
    forecast, target = paths()
    place = counted(forecast, target)[0]
    forecast.x[place] = torch.nan
    assert math.isnan(PathErrors.of(forecast, target).ade)
    assert bool(ade(forecast, target).isnan())


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


def test_the_energy_score_is_that_of_a_plain_loop():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(2, 3, 2, 4, generator=g, dtype=torch.float64)
    y = torch.randn(2, 2, 4, generator=g, dtype=torch.float64)
    found = energy_score(z, y)
    for b in range(2):
        for i in range(2):
            far = sum((z[b, k, i] - y[b, i]).norm() for k in range(3)) / 3
            apart = sum((z[b, k, i] - z[b, j, i]).norm() for k in range(3) for j in range(3)) / 9
            assert found[b, i].item() == pytest.approx((far - apart / 2).item(), abs=1e-6)


def test_the_energy_score_is_least_for_the_true_spread():
    g = torch.Generator().manual_seed(0)
    y = torch.randn(2_000, 1, 3, generator=g)
    z = torch.randn(2_000, 64, 1, 3, generator=g)
    scores = {scale: energy_score(scale * z, y).mean().item() for scale in (0.5, 0.8, 1.0, 1.25, 2)}
    assert min(scores, key=scores.get) == 1.0


def test_samples_do_not_run_away_from_each_other():
    """Two on opposite sides, ever further off, are worth less and less."""
    z, y = torch.zeros(1, 20, 3, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    scores = []
    for far in (1.0, 10.0, 100.0):
        z[0, 0, 0], z[0, 1, 0] = far, -far
        scores.append(energy_score(z, y).item())
    assert 0 < scores[0] < scores[1] < scores[2]
