"""SET-2: what its forecasts are before training, at any time, in any units, with any base."""

import pytest
import torch

from spacetime_en import (
    Forecast,
    InputError,
    SpacetimeGraph,
    StraightLine,
    build_model,
    collate,
    geometry,
)
from spacetime_en.metrics import best_of, energy_score, errors
from spacetime_en.nn.models.base import NAMES
from spacetime_en.nn.models.path import OUTLIER
from spacetime_en.nn.rollout import with_times
from spacetime_en.testing import assert_equivariant
from tests.helpers import masked, padded, particles, train_a_little

SMALL = {"hidden": 16, "channels": 4, "points": 4, "layers": 2}


def accelerated(B=40, N=3, n=3, noise=0.0, acceleration=1.0, seed=0, horizon=(1.0, 2.0)):
    """Nodes at constant acceleration, seen with noise, and where they will be."""
    g = torch.Generator().manual_seed(seed)
    x, v, a = torch.randn(3, B, 1, N, n, generator=g, dtype=torch.float64)
    a = acceleration * a
    times = torch.linspace(0, 1, 6, dtype=torch.float64)
    at = times[None, :, None, None]
    e = noise * torch.randn(2, B, 6, N, n, generator=g, dtype=torch.float64)
    seen = x + at * v + at**2 / 2 * a + e[0], v + at * a + e[1]
    graph = SpacetimeGraph(*seen, times=times, horizon=torch.tensor(horizon).expand(B, -1))
    ahead = 1 + torch.tensor(horizon)[None, :, None, None]
    target = Forecast(x + ahead * v + ahead**2 / 2 * a, v + ahead * a)
    return graph, target


def calibrated(train, val=None, liven=True, **settings):
    torch.manual_seed(0)
    model = build_model("set-2", like=train[0], **SMALL | settings).double()
    model.calibrate(train, train if val is None else val)
    if liven:
        with torch.no_grad():
            model.coefficients.weight.normal_(0, 0.1)
            model.coefficients.bias.normal_(0, 0.1)
    return model.eval()


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("acceleration", [0.0, 1.0])
def test_the_base_is_the_best_on_validation_windows(noise, acceleration):
    settings = {"noise": noise, "acceleration": acceleration}
    train, val = accelerated(**settings), accelerated(seed=1, **settings)
    chosen = calibrated(train, val, liven=False)
    error = errors(chosen(val[0]), val[1])[0].mean()
    for name in NAMES:
        other = calibrated(train, val, liven=False, base=name)
        assert other.base.chosen == name
        assert error <= errors(other(val[0]), val[1])[0].mean() * (1 + 1e-6) + 1e-12


def test_before_training_forecasts_are_those_of_the_base():
    train = accelerated()
    model = calibrated(train, liven=False, base="straight-line")
    found, expected = model(train[0]), StraightLine()(train[0])
    torch.testing.assert_close(found.x, expected.x, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.v, expected.v, rtol=0, atol=1e-12)


def test_each_target_time_is_forecast_by_itself():
    graph, target = accelerated(horizon=(1.0, 1.5, 2.0))
    model = calibrated((graph, target))
    path = model(graph)
    for k, time in enumerate((1.0, 1.5, 2.0)):
        alone = model(with_times(graph, time))
        torch.testing.assert_close(alone.x[:, 0], path.x[:, k], rtol=0, atol=1e-10)
        torch.testing.assert_close(alone.v[:, 0], path.v[:, k], rtol=0, atol=1e-10)


def test_forecasts_change_smoothly_between_the_times_of_the_training():
    graph, target = accelerated(horizon=(1.0, 2.0))
    model = calibrated((graph, target))
    times = torch.linspace(1.0, 2.0, 101).tolist()
    x = model.at(graph, times).x
    steps = x.diff(dim=1).norm(dim=-1)
    assert steps.max() < 5 * steps.mean()


@pytest.mark.parametrize("base", ["straight-line", "ridge", "least-squares-line"])
def test_units_do_not_matter(base):
    graph, target = accelerated()
    length, time = 1e3, 1e-2
    other = SpacetimeGraph(
        length * graph.x,
        length / time * graph.v,
        times=time * graph.times,
        horizon=time * graph.horizon,
    )
    scaled = Forecast(length * target.x, length / time * target.v)
    here = calibrated((graph, target), base=base, samples=4, **graph.scales())
    there = calibrated((other, scaled), base=base, samples=4, **other.scales())
    found, expected = there(other), here(graph)
    for name in ("x", "spread", "samples"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        torch.testing.assert_close(ours / length, theirs, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.v * time / length, expected.v, rtol=0, atol=1e-6)


def test_gaps_and_what_is_in_them():
    graph = masked()
    model = calibrated((graph, StraightLine()(graph)), base="straight-line")
    forecast = model(graph)
    assert forecast.x.isfinite().all()
    assert_equivariant(model, graph)


def test_how_long_ago_a_node_was_seen_matters():
    graph, target = accelerated(N=1)
    model = calibrated((graph, target), base="straight-line")
    with torch.no_grad():
        model.enter_age.normal_()
    # The same six observations; in the second graph a companion was seen some time after them.
    forecasts = []
    for late in (0.5, 5.0):
        times = torch.cat([graph.times, graph.times[:, -1:] + late], dim=1)
        x, v = (torch.cat([t, t[:, -1:]], dim=1) for t in (graph.x, graph.v))
        x, v = (torch.cat([t, t + 1e3], dim=2) for t in (x, v))
        observed = torch.ones(x.shape[:3], dtype=torch.bool)
        observed[:, -1, 0] = False
        none = torch.full((len(x), 1, 2, 1), -1)
        seen = SpacetimeGraph(
            x, v, times=times, horizon=graph.horizon, observed=observed, neighbours=none
        )
        forecasts.append(model(seen).x[:, :, 0] - StraightLine()(seen).x[:, :, 0])
    assert (forecasts[0] - forecasts[1]).abs().max() > 1e-3


def test_a_feature_that_all_nodes_share_is_not_divided_by_its_rounding_error():
    mass = torch.full((20, 3, 4, 1), 0.1)
    graph = particles(B=20, dtype=torch.float32, features=mass)
    target = StraightLine()(graph)
    model = build_model("set-2", like=graph, **SMALL)
    model.calibrate((graph, target), (graph, target))
    assert model.feature_size.item() == 1


def test_a_target_time_of_zero_is_refused():
    graph, target = accelerated(horizon=(0.0, 1.0))
    with pytest.raises(InputError, match="horizon: this model needs a time ahead, found 0"):
        calibrated((graph, target))


def test_named_nodes_are_told_apart():
    graph = particles(B=20)
    target = StraightLine()(graph)
    model = calibrated((graph, target), named=True)
    assert not model.symmetries.permutation
    assert model.config["nodes"] == 4
    twins = graph.replace(
        x=graph.x[:, :, :1].expand_as(graph.x), v=graph.v[:, :, :1].expand_as(graph.v)
    )
    x = model(twins).x
    assert (x[:, :, 0] - x[:, :, 1]).abs().max() > 1e-3
    with pytest.raises(InputError, match="tied to N = 4 nodes"):
        model(particles(N=5))


def test_it_reads_the_direction_of_space():
    graph = particles(B=8, up=[0.0, 0.0, 1.0])
    model = calibrated((graph, StraightLine()(graph)), base="straight-line")
    assert_equivariant(model, graph)  # `up` turns along
    turned = graph.replace(up=[1.0, 0.0, 0.0])
    assert (model(graph).x - model(turned).x).abs().max() > 1e-3
    with pytest.raises(InputError, match="up: this model was built for data with an up direction"):
        model(graph.replace(up=None))


def test_up_moves_no_padding():
    graph = padded(up=[0.0, 0.0, 1.0])
    model = calibrated((graph, StraightLine()(graph)), base="straight-line", samples=4)
    forecast, nobody = model(graph), ~graph.observed.any(1)
    assert nobody.any()
    assert not forecast.x.transpose(1, 2)[nobody].any()
    assert not forecast.samples.transpose(2, 3).transpose(1, 2)[nobody].any()


def test_what_is_learned_is_equivariant_in_single_precision_too():
    graph = particles(B=16, L=6, dtype=torch.float32)
    model = build_model("set-2", like=graph, **SMALL)
    model.calibrate((graph, StraightLine()(graph)), (graph, StraightLine()(graph)))
    train_a_little(model, graph, steps=5)
    assert_equivariant(model.eval(), graph)


def test_heavy_tails_do_not_rule_the_loss():
    graph, target = accelerated()
    model = calibrated((graph, target), liven=False, base="straight-line")
    far = target._replace(x=target.x.clone())
    reach = model._reach(graph)[0, 0]  # (T, 1, 1)
    far.x[0] += 1e3 * reach
    with torch.no_grad():
        near, off = (float(model.losses(graph, t, 0.0)[0]) for t in (target, far))
    assert off - near == pytest.approx(
        2 * OUTLIER[0] * 1e3, rel=0.01
    )  # by its length, not its square


def test_every_node_weighs_the_same_alone_or_in_a_crowd():
    few, many = (particles(B=1, N=N, horizon=[1.0]) for N in (2, 6))
    graph = collate([few, many])
    target = StraightLine()(graph)
    target = target._replace(x=target.x + 0.1, mask=graph.present.unsqueeze(1))
    model = calibrated((graph, target), liven=False, base="straight-line")
    one, three = model.losses(graph, target, 0.0).tolist()
    assert three == pytest.approx(3 * one)
    assert one + three == pytest.approx(2 * float(model._robust(torch.ones(3))))  # in the mean


def test_wrong_sizes_are_told():
    graph = particles()
    model = build_model("set-2", like=graph, **SMALL).double()
    with pytest.raises(InputError, match="features: the model was built for none per node"):
        model(graph.replace(features=torch.ones(3, 4, 2)))
    with pytest.raises(InputError, match="edge_attr: the model was built for 1 per edge"):
        model(graph.replace(edge_attr=None))
    with pytest.raises(InputError, match="hidden: expected a multiple of 4, found 10"):
        build_model("set-2", hidden=10)
    with pytest.raises(InputError, match="nodes"):
        build_model("set-2", named=True)


# --- samples ------------------------------------------------------------------------------------


def test_samples_turn_with_the_graph_and_are_the_same_in_every_call():
    graph, target = accelerated()
    model = calibrated((graph, target), samples=5)
    here, again = model(graph), model(graph)
    assert here.samples.shape == (40, 5, 2, 3, 3)
    assert torch.equal(here.samples, again.samples)
    torch.testing.assert_close(here.spread.square(), here.samples.var(1, correction=0).mean(-1))
    assert here.spread.min() > 0
    q = geometry.random_rotation(3, torch.Generator().manual_seed(1))
    b = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    moved, expected = model(graph.rotate(q).translate(b)), here.rotate(q).translate(b)
    torch.testing.assert_close(moved.samples, expected.samples, rtol=0, atol=1e-9)
    torch.testing.assert_close(moved.spread, expected.spread, rtol=0, atol=1e-9)


def test_samples_do_not_depend_on_what_else_is_in_the_batch():
    graph = particles(L=4)
    model = calibrated((graph, StraightLine()(graph)), base="straight-line", samples=4)
    alone, together = model(graph), model(collate([graph, particles(B=1, L=6, N=6)]))
    torch.testing.assert_close(together.spread[:3, :, :4], alone.spread)
    torch.testing.assert_close(together.samples[:3, :, :, :4], alone.samples)
    assert not together.samples[:3, :, :, 4:].any()


def test_samples_are_taught_by_the_score_of_whole_paths_and_the_nearest_path():
    graph, target = accelerated(B=4)
    model = calibrated((graph, target), liven=False, base="straight-line", samples=4)
    with torch.no_grad():
        forecast, reach = model(graph), model._reach(graph)[0]  # (B, T, 1, 1)
        z = (forecast.samples - target.x.unsqueeze(1)) / reach.unsqueeze(1)
        paths = z.transpose(2, 3).flatten(3) / 6**0.5  # (B, S, N, T n)
        score = energy_score(paths, torch.zeros_like(paths[:, 0])).mean(1)
        relative = Forecast(target.x / reach, target.v, samples=forecast.samples / reach[:, None])
        nearest, _ = best_of(relative, relative, 4)  # (B, N)
        expected = (score + nearest.mean(1) / 3**0.5) / 2
        with_samples = model.losses(graph, target, 1.0)
        model.codes = None
        torch.testing.assert_close(with_samples - model.losses(graph, target, 1.0), expected)


def test_targets_that_are_missing_teach_samples_nothing():
    graph, target = accelerated(B=4)
    model = calibrated((graph, target), samples=4)
    mask = torch.ones(4, 2, 3, dtype=torch.bool)
    mask[0, 1, 2] = mask[1, :, 0] = False
    unknown = [t.masked_fill(~mask.unsqueeze(-1), torch.nan) for t in (target.x, target.v)]
    model.losses(graph, Forecast(*unknown, mask=mask), 1.0).sum().backward()
    for weight in (model.codes, model.branch.weight, model.departure[0].weight):
        assert weight.grad.isfinite().all()
        assert weight.grad.any()


def test_one_sample_is_refused():
    with pytest.raises(InputError, match="samples: one sample shows no spread"):
        build_model("set-2", samples=1)
