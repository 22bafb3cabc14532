"""Bundles of flows from noisy windows: where they start, how far they spread, what they learn."""

import math

import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.nn.models.flow import Curriculum
from tests.helpers import liven, masked, particles
from tests.nn.samples import Law, far_apart, noisy


def ensemble(**settings):
    torch.manual_seed(0)
    model = build_model("set-flow-ensemble", **{"hidden": 8, "members": 4} | settings)
    model.force = Law()
    return liven(model).double().eval()


@pytest.mark.parametrize("graph", [particles(horizon=0.7), masked()])
def test_a_forecast_is_the_mean_of_flows_from_each_start(graph):
    model = ensemble(steps=8)
    with torch.no_grad():
        model.softening.fill_(math.log(0.3))
    flow = build_model("set-flow", hidden=8, step_fraction=None, steps=8).double().eval()
    flow.force, flow.curriculum = model.force, Curriculum(softening=(0.3, 0.3))
    forecast = model(graph)
    units, seen = model._statistics(graph)
    x, v = model.observer(seen, model.draws[..., : graph.x.shape[1]])
    ends = []
    for k in range(4):
        start = SpacetimeGraph(
            x[:, k, None] + units.origin,
            v[:, k, None],
            edge_attr=graph.edge_attr[:, 0],
            observed=None if graph.present is None else graph.present[:, None],
            horizon=graph.horizon + seen.mean_age[:, None],
        )
        ends.append(flow(start))
    torch.testing.assert_close(forecast.x, sum(end.x for end in ends) / 4)
    torch.testing.assert_close(forecast.v, sum(end.v for end in ends) / 4)
    positions = torch.stack([end.x for end in ends])
    torch.testing.assert_close(forecast.samples.movedim(1, 0), positions)
    spread = positions.var(0, correction=0).mean(-1).sqrt()
    if graph.observed is not None:  # a single observation does not show how noisy it is
        spread[(graph.observed.sum(1) == 1)[:, None]] = torch.nan
    torch.testing.assert_close(forecast.spread, spread, equal_nan=True)


def test_whole_trajectories_spread_more_and_more():
    graph = far_apart(L=6)
    model = ensemble(members=8, steps=256)
    film = model.at(graph, [0.0, 1.0, 4.0])
    first, second, third = film.spread.mean((0, 2)).tolist()
    assert 0 < 1.2 * first < second < third / 1.2
    one = model(graph.replace(horizon=1.0))
    torch.testing.assert_close(film.x[:, 1], one.x[:, 0], atol=0.05, rtol=0.01)
    assert film.samples.shape == (3, 8, 3, 4, 3)
    torch.testing.assert_close(film.samples.mean(1), film.x)


def test_the_spread_does_not_turn():
    model, graph = ensemble(), particles(L=6)
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    torch.testing.assert_close(model(graph.rotate(q)).spread, model(graph).spread)


def test_of_a_single_frame_the_spread_is_not_known():
    assert ensemble()(particles(L=1)).spread is None
    graph = masked()
    seen = graph.observed.clone()
    seen[0, 1:] = False
    spread = ensemble()(graph.replace(observed=seen)).spread[:, 0]
    once = seen.sum(1) == 1
    assert spread[once].isnan().all()
    assert spread[~once].isfinite().all()


@pytest.mark.parametrize("L", [2, 5, 300])
@pytest.mark.parametrize("members", [2, 16])
def test_random_numbers_have_mean_0_and_mean_square_1_in_every_frame(L, members):
    numbers = ensemble(members=members).draws
    torch.testing.assert_close(numbers.mean(2), torch.zeros_like(numbers.mean(2)))
    torch.testing.assert_close(numbers.square().mean(2), torch.ones_like(numbers.mean(2)))
    assert ensemble(members=members, steps=1)(particles(L=L)).spread.isfinite().all()


def test_the_spread_does_not_depend_on_what_else_is_in_the_batch():
    alone = ensemble()(particles(L=4))
    together = ensemble()(collate([particles(L=4), particles(B=1, L=6, N=6)]))
    torch.testing.assert_close(together.spread[:3, :, :4], alone.spread)


def test_the_spread_follows_batch_nodes_and_precision():
    forecast = ensemble()(particles(L=6))
    assert torch.equal(forecast[[1]].spread, forecast.spread[[1]])
    p = torch.tensor([2, 0, 1, 3])
    assert torch.equal(forecast.permute(p).spread, forecast.spread[:, :, p])
    assert forecast.to(torch.float32).spread.dtype == torch.float32
    assert forecast.translate(torch.ones(3)).spread is forecast.spread


def test_units_change_nothing():
    graph = particles(L=5, times=0.1 * torch.arange(5), horizon=1.0)
    other = graph.replace(
        x=1e3 * graph.x, v=1e3 / 60 * graph.v, times=60 * graph.times, horizon=60 * graph.horizon
    )
    mine, theirs = ensemble(), ensemble(length_scale=1e3, time_scale=60.0)
    torch.testing.assert_close(theirs(other).x, 1e3 * mine(graph).x)
    torch.testing.assert_close(theirs(other).spread, 1e3 * mine(graph).spread)


def test_members_may_be_changed_and_must_be_some(tmp_path):
    graph = particles(L=6)
    model = build_model("set-flow-ensemble", like=graph).double()
    model.save_pretrained(tmp_path)
    fewer = type(model).from_pretrained(tmp_path, members=2).double()
    assert fewer.draws.shape[2] == 2
    assert not torch.equal(fewer(graph).x, model(graph).x)
    with pytest.raises(InputError, match="members: expected a positive whole number"):
        build_model("set-flow-ensemble", members=0)
    with pytest.raises(InputError, match="members: expected an even number, found 3"):
        build_model("set-flow-ensemble", members=3)


# --- what it learns from ------------------------------------------------------------------------


def test_losses_teach_law_trust_and_doubt_and_padding_counts_for_nothing():
    graph = particles(B=2, L=5)
    model = ensemble().train()
    model.force = build_model("set-flow", hidden=8).double().force
    target = Forecast(graph.x[:, -1:] + 1.0, graph.v[:, -1:])

    def losses(graph, target):
        torch.manual_seed(3)
        return model.losses(graph, target, alpha=1.0)

    found = losses(graph, target)
    found.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in model.observer.parameters())
    assert model.force.phi[-1].weight.grad.abs().sum() > 0
    graph = masked()
    target = Forecast(*torch.ones(2, 3, 1, 5, 3).double())
    missing = ~graph.present[:, None, :, None]
    other = Forecast(target.x.masked_fill(missing, 7.0), target.v)
    torch.testing.assert_close(losses(graph, target), losses(graph, other))
    # So does a node that has left before the target time, also if nothing is known of it.
    missing[0, 0, 1] = True
    mask = ~missing.squeeze(-1)
    gone, nan = (
        Forecast(target.x.masked_fill(missing, fill), target.v, mask=mask)
        for fill in (7.0, torch.nan)
    )
    torch.testing.assert_close(losses(graph, gone), losses(graph, nan))
    assert losses(graph, gone)[0] != losses(graph, target)[0]


def test_the_right_doubt_has_the_lowest_loss():
    graph, x, v = noisy(W=3000, L=8, noise=0.5)
    # The same states, observed once more.
    g = torch.Generator().manual_seed(9)
    e = 0.5**0.5 * torch.randn(2, *x.shape, generator=g, dtype=torch.float64)
    target = Forecast((x + e[0])[:, None], (v + e[1])[:, None])
    graph = graph.replace(horizon=1e-3)
    model = build_model("set-flow-ensemble", like=graph, steps=1).double().train()  # no force yet
    model.calibrate((graph, target), (graph, target))
    right = model.observer.log_spread.clone()
    scores = {}
    for factor in (0.3, 1.0, 3.0):
        with torch.no_grad():
            model.observer.log_spread.copy_(right + math.log(factor))
            torch.manual_seed(0)
            scores[factor] = model.losses(graph, target, alpha=1.0).mean().item()
    assert min(scores, key=scores.get) == 1.0
