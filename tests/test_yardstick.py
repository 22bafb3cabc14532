"""The benchmarks' baseline computes the same as the model."""

import pytest
import torch

from benchmarks.yardstick import yardstick
from spacetime_en import build_model
from tests.helpers import SMALL, liven, particles


@pytest.mark.parametrize("preset", ["set", "set-no-temporal", "egnn"])
def test_the_plain_way_gives_the_same_forecasts_and_gradients(preset):
    graph = particles(B=2, L=4, N=5)
    size = SMALL if preset != "egnn" else {"hidden": 16}
    model = liven(build_model(preset, like=graph, **size)).double().eval()
    plain = yardstick(model)
    results = []
    for each in (model, plain):
        forecast = each(graph)
        (forecast.x.square().mean() + forecast.v.square().mean()).backward()
        grads = {n: p.grad for n, p in each.named_parameters() if p.grad is not None}
        results.append((forecast, grads))
    (ours, our_grads), (theirs, their_grads) = results
    torch.testing.assert_close(ours.x, theirs.x)
    torch.testing.assert_close(ours.v, theirs.v)
    for name, grad in our_grads.items():
        torch.testing.assert_close(grad, their_grads.get(name, torch.zeros_like(grad)))
