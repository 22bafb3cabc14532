"""What corrects a base along a path: in units of the base's errors, by a loss relative to them."""

import pytest
import torch

from spacetime_en import Forecast, StraightLine, build_model
from spacetime_en.nn.models.path import OUTLIER
from spacetime_en.nn.rollout import with_times
from tests.helpers import particles

PRESETS = ("set-2", "transformer")


def example(B=6, seed=0):
    """Windows, and targets that the straight line misses by more the later they are."""
    graph = with_times(particles(B=B, seed=seed), [1.0, 3.0])
    line = StraightLine()(graph)
    g = torch.Generator().manual_seed(seed)
    x, v = torch.randn(2, *line.x.shape, generator=g, dtype=torch.float64)
    late = graph.horizon[..., None, None]
    mask = torch.ones(line.x.shape[:3], dtype=torch.bool)
    mask[0, 1, 2] = mask[1, 0] = False
    x, v = line.x + late.square() * x, line.v + late * v
    x, v = (t.masked_fill(~mask[..., None], torch.nan) for t in (x, v))
    return graph, Forecast(x, v, mask=mask)


def calibrated(preset, pair, base="straight-line"):
    torch.manual_seed(0)
    model = build_model(preset, like=pair[0], hidden=8, layers=1, base=base).double()
    model.calibrate(pair, pair)
    return model.eval()


@pytest.mark.parametrize("preset", PRESETS)
def test_reach_is_the_typical_error_of_the_base(preset):
    graph, target = pair = example()
    model, line = calibrated(preset, pair), StraightLine()(graph)
    for k, (ours, true) in enumerate(((line.x, target.x), (line.v, target.v))):
        for t in range(2):
            missed = (ours - true)[:, t][target.mask[:, t]]
            assert float(model.reach[k, t]) == pytest.approx(float(missed.square().mean() ** 0.5))
    assert float(model.counts) == pytest.approx(float(target.mask.sum()) / len(graph))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_forecast_before_training_is_the_base_at_any_time(preset):
    model = calibrated(preset, example(), base="parabola")
    for times in ([1.0, 3.0], [0.5, 2.0, 7.0]):
        graph = with_times(particles(seed=3), times)
        base = model.base(graph)
        assert torch.equal(model(graph).x, base.x)
        assert torch.equal(model(graph).v, base.v)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_the_loss_is_its_equation(preset, fraction):
    """Squares of small errors, lengths of large ones, relative to the reach, at targets that count.

    rho(e) = 2 d (sqrt(|e|^2 / n + d^2) - d).
    """
    graph, target = pair = example()
    model, line = calibrated(preset, pair), StraightLine()(graph)
    model.set_progress(fraction)
    d = OUTLIER[0] * (OUTLIER[1] / OUTLIER[0]) ** fraction
    with torch.no_grad():
        found = model.losses(graph, target, 0.5)
    for b in range(len(graph)):
        total = 0.0
        for t in range(2):
            for i in range(4):
                if target.mask[b, t, i]:
                    for k, (name, weight) in enumerate({"x": 1.0, "v": 0.5}.items()):
                        e = getattr(line, name)[b, t, i] - getattr(target, name)[b, t, i]
                        square = float((e / model.reach[k, t]).square().mean())
                        total += weight * 2 * d * ((square + d**2) ** 0.5 - d)
        assert float(found[b]) == pytest.approx(total / float(model.counts))


@pytest.mark.parametrize("preset", PRESETS)
def test_times_between_those_of_the_training_are_known(preset):
    model = calibrated(preset, example())
    for times, known in (([1.5, 2.0], True), ([0.5, 2.0], False), ([1.0, 4.0], False)):
        assert model._was_trained_for(with_times(particles(), times)) == known
