"""Kernel regression on whole motions: aligned to a template, kernel ridge, rotated back."""

import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, SpacetimeGraph, build_model
from spacetime_en.data import load_task
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.models.kernel import KERNEL_PENALTIES, WIDTHS, Kernel
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.nn.rollout import with_times
from spacetime_en.testing import equivariance_errors
from spacetime_en.training import fit
from tests.data.cmu import needs_cmu
from tests.helpers import particles
from tests.nn.samples import MIRROR, bodies


def law(graph):
    """Nodes are drawn to their centroid, the more the faster the first of them is."""
    tau = graph.horizon[..., None, None]  # (B, T, 1, 1)
    last, v = graph.x[:, -1:], graph.v[:, -1:].expand(-1, tau.shape[1], -1, -1)
    speed = v[:, :, :1].square().sum(-1, keepdim=True)
    pull = torch.tanh(speed) * (last - last.mean(2, keepdim=True))
    return Forecast(last + tau * v - 0.5 * pull, v - pull / tau)


def solved(train, val, **settings):
    model = build_model("kernel", like=train, **settings).double()
    model.solve([(train, law(train))], [(val, law(val))])
    return model


def test_as_built_it_is_the_straight_line():
    graph = bodies()
    model = build_model("kernel", like=graph).double()
    torch.testing.assert_close(model(graph).x, StraightLine()(graph).x)
    torch.testing.assert_close(model(graph).v, StraightLine()(graph).v)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("mirrored", [True, False])
def test_solved_it_is_equivariant_to_rounding(up, mirrored):
    train, other = bodies(B=30, up=up), bodies(B=5, seed=1, up=up)
    model = solved(train, other, mirrored=mirrored)
    assert (model(other).x - StraightLine()(other).x).abs().max() > 0.01
    found = equivariance_errors(model, other)
    assert max(found.translation, found.rotation) < 1e-9
    assert found.permutation > 1e-3


def test_what_one_side_does_the_other_could_do():
    graph = bodies(B=30)
    swapped = graph.permute(torch.tensor(MIRROR))
    for mirrored in (True, False):
        model = solved(graph, graph, mirrored=mirrored)
        here, there = model(graph), model(swapped)
        assert torch.allclose(there.x, here.x[:, :, MIRROR], atol=1e-10) == mirrored


def test_windows_fit_the_template_best_as_they_are_turned():
    """No other rotation, or rotation about up if there is one, aligns a window better."""
    for up in (True, False):
        train = bodies(B=30, up=up)
        model = solved(train, train)
        start = model.start(train)
        seen = model._descriptors(start)
        turn = model._alignment(start.graph, seen, model.template)
        torch.testing.assert_close(turn @ turn.mT, torch.eye(3).double().expand_as(turn))
        best = (seen @ turn - model.template).square().sum((1, 2))
        if up:
            assert torch.allclose(turn[:, 1], torch.eye(3).double()[0])  # up is the first axis
        for k in range(20):
            q = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(k)))[0]
            if up:
                angle = torch.linalg.qr(q[1:, 1:])[0]
                q = torch.block_diag(torch.ones(1, 1), angle)
            other = (seen @ turn @ q.double() - model.template).square().sum((1, 2))
            assert (other >= best - 1e-9).all()


@pytest.mark.parametrize("times", [[2.0], [0.5, 2.0]])
def test_forecasts_are_those_of_plain_kernel_regression(times):
    train, val, test = (
        with_times(bodies(B=B, seed=seed), times) for seed, B in enumerate((12, 9, 4))
    )
    model = solved(train, val, mirrored=False)

    def turned(graph):
        start = model.start(graph)
        seen = model._descriptors(start)
        turn = model._alignment(start.graph, seen, model.template)
        line, end = StraightLine()(graph), law(graph)
        residual = end.x - line.x, graph.horizon[..., None, None] * (end.v - line.v)
        values = [(b @ turn.unsqueeze(1)).flatten(1) for b in residual]
        return (seen @ turn).flatten(1), values, turn

    (a, y, _), (b, y_val, _), (c, _, turn) = (turned(g) for g in (train, val, test))
    square = [(a[i] - a[j]).square().sum() for i in range(12) for j in range(i)]
    median = torch.stack(square).median()
    found = []
    for width in WIDTHS:
        k_train, k_val, k_test = (
            torch.stack([torch.exp(-(p - a).square().sum(1) / (width * median)) for p in some])
            for some in (a, b, c)
        )
        for penalty in KERNEL_PENALTIES:
            w = [torch.linalg.solve(k_train + penalty * torch.eye(12).double(), t) for t in y]
            error = [float((k_val @ w[i] - y_val[i]).square().mean()) for i in range(2)]
            found.append(
                (
                    width,
                    error,
                    [(k_test @ t).unflatten(1, (-1, 8, 3)) @ turn.mT.unsqueeze(1) for t in w],
                )
            )
    width, _, (x, _) = min(found, key=lambda case: case[1][0])
    same = [case for case in found if case[0] == width]  # velocities have a penalty of their own
    _, _, (_, v) = min(same, key=lambda case: case[1][1])
    line = StraightLine()(test)
    torch.testing.assert_close(model(test).x, line.x + x, rtol=1e-5, atol=1e-6)
    v = line.v + v / test.horizon[..., None, None]
    torch.testing.assert_close(model(test).v, v, rtol=1e-5, atol=1e-6)


def gait(B, seed):
    """Bodies at some phase of a gait, arbitrarily rotated, and what follows: its third harmonic."""
    g = torch.Generator().manual_seed(seed)
    pose, swing, kick = torch.randn(3, 8, 3, generator=torch.Generator().manual_seed(9)).double()
    phase = 6.3 * torch.rand(B, 1, 1, 1, generator=g, dtype=torch.float64)
    moments = phase + 0.3 * torch.arange(3).view(3, 1, 1)  # (B, 3, 1, 1)
    turn = torch.linalg.qr(torch.randn(B, 1, 3, 3, generator=g, dtype=torch.float64))[0]
    x = (3 * pose + moments.sin() * swing + moments.cos() * kick) @ turn
    graph = SpacetimeGraph.from_positions(x, horizon=2.0)
    residual = (3 * phase).sin() * swing @ turn
    line = StraightLine()(graph)
    return graph, Forecast(line.x + residual, line.v - residual)


def test_what_no_weighted_sum_of_vectors_can_say_is_learned():
    train, val, (graph, target) = gait(100, 0), gait(50, 1), gait(50, 2)
    residual = (StraightLine()(graph).x - target.x).square().mean().item()
    error = {}
    for name in ("kernel", "ridge"):
        model = build_model(name, like=graph).double()
        model.solve([train], [val])
        error[name] = (model(graph).x - target.x).square().mean().item() / residual
        slip = (model(graph).v - target.v).square().mean().item() / residual
        assert slip == pytest.approx(error[name], rel=0.1)
    assert error["kernel"] < 1e-3 < 0.5 < error["ridge"]


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e11])
def test_in_single_precision_any_unit_will_do(scale):
    (train, first), (val, second), (graph, target) = (gait(100, seed) for seed in range(3))
    units = [
        (
            g.replace(x=scale * g.x, v=scale * g.v).to(torch.float32),
            Forecast(scale * t.x, scale * t.v),
        )
        for g, t in ((train, first), (val, second), (graph, target))
    ]
    model = build_model("kernel", like=units[0][0])
    error = model.solve(units[:1], units[1:2])
    residual = (StraightLine()(graph).x - target.x).square().mean().item()
    assert error < 1e-3 * residual * scale**2
    off = model(units[2][0]).x.double() / scale - target.x
    assert off.square().mean().item() < 1e-3 * residual
    found = equivariance_errors(model, units[2][0], max_translation=scale)
    assert max(found.translation, found.rotation) < 1e-3
    whole = model(units[2][0]).x
    with torch.autocast("cpu", dtype=torch.float16):  # which is not for it
        assert torch.equal(model(units[2][0]).x, whole)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("flat", ["in a plane", "at rest"])
def test_flat_windows_and_many_at_rest_spoil_nothing(up, flat):
    """The first of the windows has no third direction, and most of them may be the same."""
    train, val = bodies(B=90, L=3, up=up), bodies(B=40, L=3, seed=1, up=up)
    x, v = train.x.clone(), train.v.clone()
    if flat == "in a plane":
        x[0, ..., 2] = v[0, ..., 2] = 0.0
    else:
        x[:70], v[:70] = x[:1, -1:], 0.0
    train = train.replace(x=x, v=v)
    model = build_model("kernel", like=train).double()
    error = model.solve([(train, law(train))], [(val, law(val))])
    assert error == pytest.approx((model(val).x - law(val).x).square().mean().item())
    assert error < (StraightLine()(val).x - law(val).x).square().mean()
    found = equivariance_errors(model, val)
    assert max(found.translation, found.rotation) < 1e-8


@pytest.mark.parametrize(("N", "L", "n"), [(1, 1, 3), (1, 3, 2), (3, 1, 2), (4, 2, 1)])
def test_few_nodes_frames_and_dimensions_are_enough(N, L, n):
    graph = particles(B=9, N=N, L=L, n=n, horizon=1.0).replace(edge_attr=None)
    model = build_model("kernel", like=graph).double()
    target = Forecast(graph.x[:, -1:] + 2 * graph.v[:, -1:], graph.v[:, -1:])
    model.solve([(graph, target)], [(graph, target)])
    found = equivariance_errors(model, graph)
    assert max(found.translation, found.rotation) < 1e-6
    alone = build_model("kernel", like=graph).double()
    alone.solve([(graph[:1], target[:1])], [(graph, target)])
    assert equivariance_errors(alone, graph).rotation < 1e-6


def test_what_was_solved_comes_back_from_disk(tmp_path):
    graph = bodies(B=9)
    model = solved(graph, graph)
    model.save_pretrained(tmp_path / "m")
    assert torch.equal(Forecaster.from_pretrained(tmp_path / "m").double()(graph).x, model(graph).x)


def test_fewer_centres_than_windows_and_more_and_batches_make_little_difference():
    train, val = bodies(B=60, L=2), bodies(B=30, L=2, seed=1)
    whole = solved(train, val, centres=120)
    assert torch.equal(whole(val).x, solved(train, val, centres=500)(val).x)
    fewer = solved(train, val, centres=100)
    off = (fewer(val).x - whole(val).x).norm() / (whole(val).x - StraightLine()(val).x).norm()
    assert 0 < off < 0.3
    parts = build_model("kernel", like=train, mirrored=False).double()
    parts.solve([(train[:20], law(train[:20])), (train[20:], law(train[20:]))], [(val, law(val))])
    at_once = solved(train, val, mirrored=False)
    torch.testing.assert_close(parts(val).x, at_once(val).x, rtol=1e-5, atol=1e-6)


def test_units_change_nothing():
    train, val = bodies(B=30), bodies(B=9, seed=1)
    model = solved(train, val)
    targets = [Forecast(1e-3 * law(g).x, 1e-3 * law(g).v) for g in (train, val)]
    small = [g.replace(x=1e-3 * g.x, v=1e-3 * g.v) for g in (train, val)]
    other = build_model("kernel", like=train).double()
    other.solve([(small[0], targets[0])], [(small[1], targets[1])])
    torch.testing.assert_close(1e3 * other(small[1]).x, model(val).x, rtol=1e-5, atol=1e-6)


def test_bodies_that_do_not_move_stay():
    graph = bodies()
    still = graph.replace(x=graph.x[:, :1].expand_as(graph.x), v=torch.zeros_like(graph.v))
    model = build_model("kernel", like=graph).double()
    model.solve([(still, Forecast(still.x[:, -1:], still.v[:, -1:]))] * 2, [(still, law(still))])
    torch.testing.assert_close(model(still).x, still.x[:, -1:])
    assert model(graph).x.isfinite().all()


def test_without_windows_or_numbers_it_says_so():
    graph = bodies()
    model = build_model("kernel", like=graph).double()
    for train, val in (([], [(graph, law(graph))]), ([(graph, law(graph))], [])):
        with pytest.raises(InputError, match="windows: expected some to fit and some to choose by"):
            model.solve(train, val)
    broken = Forecast(law(graph).x * torch.nan, law(graph).v)
    with pytest.raises(InputError, match="no penalty has a finite error; look for NaN"):
        model.solve([(graph, broken)], [(graph, law(graph))])


@pytest.mark.parametrize(
    ("make", "graph", "sentence"),
    [
        (lambda: Kernel(8, 4), bodies, r"tied to 4 frames.* has 5"),
        (lambda: Kernel(9, 5), bodies, "tied to N = 9 nodes"),
        (lambda: Kernel(8, 5, dims=2), bodies, "tied to n = 2 space dimensions"),
        (lambda: Kernel(8, 5, up=True), lambda: bodies(up=False), "up direction"),
        (lambda: Kernel(8, 5), lambda: bodies().replace(box=[40.0] * 3), "box: kernel regression"),
        (
            lambda: Kernel(3341, 10),
            bodies,
            r"centres: 2000 windows of 3341 nodes .* take fewer windows",
        ),
    ],
)
def test_graphs_that_it_was_not_built_for_are_refused(make, graph, sentence):
    with pytest.raises(InputError, match=sentence):
        make().double()(graph())


@needs_cmu
def test_on_running_people_it_is_as_good_as_promised():
    task = load_task("mocap-run")
    model = build_model("kernel", like=task.train[:1][0])
    fit(model, task)
    found, _ = measure_errors(model, task.test, 100)
    assert float(found.position.mean()) < 0.18
