"""Ridge regression in closed form: the normal equations, equivariant, the same signature."""

import dataclasses

import numpy as np
import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, build_model
from spacetime_en.data import load_task
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.models.ridge import MOST_WEIGHT, Ridge, SharedRidge
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.nn.state import Units, without_gaps
from spacetime_en.testing import assert_equivariant, rotation_error
from spacetime_en.training import fit
from tests.data.cmu import needs_cmu
from tests.helpers import masked, padded, particles, random_neighbours, with_gaps

PRESETS = ("ridge", "ridge-shared")


def solved(preset, graph, target):
    model = build_model(preset, like=graph).double()
    model.solve([(graph, target)], [(graph, target)])
    return model


def some_target(graph, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = (len(graph), graph.horizon.shape[1], *graph.x.shape[2:])
    noise = torch.randn(2, *shape, generator=g, dtype=graph.x.dtype)
    return Forecast(graph.latest().x + noise[0], noise[1])


@pytest.mark.parametrize("preset", PRESETS)
def test_as_built_it_is_the_straight_line(preset):
    graph = particles()
    model = build_model(preset, like=graph).double()
    straight = StraightLine()(graph)
    assert torch.allclose(model(graph).x, straight.x, atol=1e-12)
    assert torch.allclose(model(graph).v, straight.v, atol=1e-12)


def test_the_weights_of_a_node_are_those_of_plain_least_squares():
    """By loops over windows, nodes, frames and coordinates, with the same penalty."""
    graph = particles(B=9, L=3, N=2)
    target = some_target(graph)
    model = solved("ridge", graph, target)
    rows, values = [], []
    for b in range(9):
        x, v, tau = graph.x[b], graph.v[b], graph.horizon[b, 0]
        for c in range(3):
            row = [x[-1, j, c] - x[t, j, c] for t in range(2) for j in range(2)]
            row += [x[-1, j, c] - (x[-1, 0, c] + x[-1, 1, c]) / 2 for j in range(2)]
            row += [tau * v[-1, j, c] for j in range(2)]
            rows.append(torch.stack(row))
            values.append(target.x[b, 0, :, c] - x[-1, :, c] - tau * v[-1, :, c])
    f, y = torch.stack(rows), torch.stack(values)
    scale = (f.mT @ f).diagonal().mean()
    solutions = [
        torch.linalg.solve(f.mT @ f + penalty * scale * torch.eye(8, dtype=f.dtype), f.mT @ y)
        for penalty in (10.0 ** (k / 2) for k in range(-20, 5))
    ]
    errors = [(f @ w - y).square().mean() for w in solutions]
    # Of penalties that are equally good up to rounding, the CPU decides which is the best.
    torch.testing.assert_close((f @ model.position - y).square().mean(), min(errors))
    assert any(torch.allclose(model.position, w, rtol=1e-6, atol=1e-6) for w in solutions)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_law_that_it_can_express_is_found(preset):
    """x beyond the line = 0.7 of the last difference and 0.3 of the offset; v follows another."""

    def law(graph):
        tau = graph.horizon[..., None, None]
        last, before = graph.x[:, -1:], graph.x[:, -2:-1]
        offset = last - last.mean(2, keepdim=True)
        line = tau * graph.v[:, -1:]
        return Forecast(
            last + line + 0.7 * (last - before) + 0.3 * offset, (line - 0.2 * offset) / tau
        )

    train, test = particles(B=60, seed=1), particles(B=5, seed=2)
    model = solved(preset, train, law(train))
    assert torch.allclose(model(test).x, law(test).x, atol=1e-5)
    assert torch.allclose(model(test).v, law(test).v, atol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_weights_that_would_scale_up_rounding_errors_are_not_taken(preset):
    """x beyond the line = 300 times a second difference: true, and useless in float32."""

    def law(graph):
        bend = graph.x[:, -1:] - 2 * graph.x[:, -2:-1] + graph.x[:, -3:-2]
        line = StraightLine()(graph)
        return line._replace(x=line.x + 300 * bend)

    train = particles(B=60, seed=1)
    model = solved(preset, train, law(train))
    assert 1 < model.position.norm(dim=0).max() <= MOST_WEIGHT
    assert rotation_error(model.float(), particles(B=5, seed=2).to(torch.float32)) < 1e-4


def test_the_penalty_is_chosen_by_validation():
    """Weights that fit a few training windows best fit their noise."""
    train, val = particles(B=12, seed=1), particles(B=400, seed=2)
    pairs = [[(g, some_target(g, seed))] for seed, g in enumerate((train, val))]
    model = Ridge(4, 3).double()
    error = model.solve(*pairs)
    plain = Ridge(4, 3).double()
    plain.solve(pairs[0], pairs[0])
    truth = pairs[1][0][1].x
    chosen, overfitted = ((m(val).x - truth).square().mean().item() for m in (model, plain))
    assert error == pytest.approx(chosen, rel=1e-9)
    assert chosen < 0.9 * overfitted


def test_batches_make_no_difference():
    graph = particles(B=10)
    target = some_target(graph)
    one, many = (Ridge(4, 3).double() for _ in range(2))
    one.solve([(graph, target)], [(graph, target)])
    parts = [(graph[i : i + 3], target[i : i + 3]) for i in range(0, 10, 3)]
    many.solve(parts, parts)
    assert torch.allclose(one(graph).x, many(graph).x, atol=1e-6)


def test_sparse_graphs_and_no_edges_at_all():
    graph = particles(N=6)
    listed = dataclasses.replace(graph, neighbours=random_neighbours(6, 3, 3, 1), edge_attr=None)
    model = build_model("ridge-shared", like=listed).double()
    model.solve([(listed, some_target(listed))], [(listed, some_target(listed))])
    assert_equivariant(model, listed)


def gappy(B, seed):
    """Windows with gaps and padding; in the last frame of each, some node was observed."""
    graph = particles(B=B, L=4, N=5, seed=seed, times=[0.0, 1.0, 1.5, 3.0])
    graph = graph.replace(horizon=torch.tensor([[1.0, 2.5]]).expand(B, 2))
    g = torch.Generator().manual_seed(seed)
    seen = torch.rand(B, 4, 5, generator=g) < 0.7
    seen[:, :, 4] &= torch.arange(B)[:, None] % 2 == 0  # padding in every other window
    seen[:, -1, 0] = True
    target = some_target(graph, seed)
    mask = torch.rand(B, 2, 5, generator=g) < 0.8
    target = target.replace(x=target.x.masked_fill(~mask[..., None], torch.nan), mask=mask)
    return with_gaps(graph, seen), target


def test_shared_weights_are_those_of_plain_least_squares_with_gaps_and_paths():
    """By loops over windows, nodes, edges and coordinates: gaps filled in by straight lines."""
    graph, target = gappy(20, 0)
    model = solved("ridge-shared", graph, target)
    state = without_gaps(graph, Units.of(graph, 1.0, 1.0, centred=False).normalize(graph))
    x, velocities, last = state.x.numpy(), graph.v.numpy(), graph.last_observed.numpy()
    line = StraightLine()(graph)
    for k in range(2):
        rows, values, places = [], {"x": [], "v": []}, []
        for b in range(20):
            nodes = graph.present[b].nonzero()[:, 0].tolist()
            v = {i: velocities[b, last[b, i], i] for i in nodes}
            motion = {i: [x[b, -1, i] - x[b, t, i] for t in range(3)] + [2.5 * v[i]] for i in nodes}
            centre = np.mean([x[b, -1, i] for i in nodes], axis=0)
            mean = np.mean([motion[i] for i in nodes], axis=0)
            for i in nodes:
                if not target.mask[b, k, i]:
                    continue
                others = [
                    j
                    for j in range(5)
                    if j != i and graph.observed[b, -1, i] and graph.observed[b, -1, j]
                ]
                sums = np.zeros((4, 3))
                for j in others:
                    d, a = x[b, -1, i] - x[b, -1, j], float(graph.edge_attr[b, 0, i, j])
                    unit = d / np.linalg.norm(d)
                    sums += np.stack([d, a * d, unit, a * unit]) / len(others)
                rows.append(np.concatenate([motion[i], mean, [x[b, -1, i] - centre], sums]).T)
                tau = float(graph.horizon[b, k])
                values["x"].append((target.x[b, k, i] - line.x[b, k, i]).numpy())
                values["v"].append(tau * (target.v[b, k, i] - line.v[b, k, i]).numpy())
                places.append((b, i, tau))
        f = np.concatenate(rows)  # (rows of all coordinates, A)
        for name, weights in (("x", model.position), ("v", model.velocity)):
            y = np.concatenate(values[name])
            scale = np.diagonal(f.T @ f).mean()
            fits = [
                np.linalg.solve(f.T @ f + 10.0 ** (p / 2) * scale * np.eye(f.shape[1]), f.T @ y)
                for p in range(-20, 5)
            ]
            least = min(np.square(f @ w - y).mean() for w in fits)
            found = weights[:, k].detach().numpy()
            assert np.square(f @ found - y).mean() == pytest.approx(least, rel=1e-9)
            residual = (f @ found).reshape(-1, 3)
            forecast, straight = (getattr(t, name).detach() for t in (model(graph), line))
            for (b, i, tau), r in zip(places, residual, strict=True):
                part = r if name == "x" else r / tau
                expected = straight[b, k, i].numpy() + part
                np.testing.assert_allclose(forecast[b, k, i].numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("preset", PRESETS)
def test_several_times_are_several_fits(preset):
    windows = [particles(B=30, seed=seed, horizon=[[1.0, 2.0]] * 30) for seed in (1, 2)]
    pairs = [(graph, some_target(graph, seed)) for seed, graph in enumerate(windows)]
    both = build_model(preset, like=windows[0]).double()
    error = both.solve(*([pair] for pair in pairs))
    errors = []
    for t in range(2):
        only = torch.arange(2).view(1, 2, 1).expand(30, 2, 4) == t
        one = build_model(preset, like=windows[0]).double()
        errors.append(one.solve(*([(graph, y.replace(mask=only))] for graph, y in pairs)))
        found, expected = both(windows[1]), one(windows[1])
        torch.testing.assert_close(found.x[:, t], expected.x[:, t])
        torch.testing.assert_close(found.v[:, t], expected.v[:, t])
    assert error == pytest.approx(sum(errors) / 2)


def test_a_time_at_which_nothing_counts_is_left_to_the_straight_line():
    graph = particles(B=12, horizon=[[1.0, 2.0]] * 12)
    mask = torch.ones(12, 2, 4, dtype=torch.bool)
    mask[:, 1] = False
    target = some_target(graph).replace(mask=mask)
    model = solved("ridge-shared", graph, target)
    line = StraightLine()(graph)
    torch.testing.assert_close(model(graph).x[:, 1], line.x[:, 1])
    assert not torch.allclose(model(graph).x[:, 0], line.x[:, 0])
    with pytest.raises(InputError, match="windows: no target of a validation window counts"):
        solved("ridge-shared", graph, target.replace(mask=mask & False))


def test_fit_solves_it_and_it_saves_and_loads(tiny_task, tmp_path):
    graph, _ = tiny_task.train[:1]
    model = build_model("ridge-shared", like=graph)
    kept = []
    progress = fit(model, tiny_task, save=lambda state, best: kept.append((state, best)))
    assert progress.step == 1
    assert kept[0][1]
    found, _ = measure_errors(model, tiny_task.val, 5)
    assert float(found.position.mean()) == pytest.approx(progress.best, rel=1e-3)
    straight, _ = measure_errors(StraightLine(), tiny_task.val, 5)
    assert progress.best < float(straight.position.mean())
    model.save_pretrained(tmp_path / "m")
    again = Forecaster.from_pretrained(tmp_path / "m")
    assert isinstance(again, SharedRidge)
    assert torch.equal(again(graph).x, model(graph).x)


def frames_of(graph):
    """Without gaps in time: nodes are there in all frames, or in none."""
    return graph.replace(
        x=graph.x.nan_to_num(), v=graph.v.nan_to_num(), observed=graph.present[:, None]
    )


@pytest.mark.parametrize(
    ("make", "graph", "sentence"),
    [
        (lambda: Ridge(4, 5), particles, r"tied to 5 frames.* has 3; build it with"),
        (lambda: Ridge(5, 3), particles, "tied to N = 5 nodes"),
        (lambda: Ridge(5, 5), masked, "observed: this model needs every node in all 5 frames"),
        (
            lambda: Ridge(5, 5),
            lambda: frames_of(padded()),
            "tied to N = 5 nodes, but a graph of the batch has 3 of 5",
        ),
        (lambda: SharedRidge(5), masked, "starts at the last frame, in which no node of graph 2"),
        (lambda: SharedRidge(3, targets=2), particles, "weights for 2 target .* asks for 1; build"),
        (lambda: SharedRidge(3, 2), particles, "edge_attr: the model was built for 2"),
    ],
)
def test_graphs_that_it_was_not_built_for_are_refused(make, graph, sentence):
    with pytest.raises(InputError, match=sentence):
        make().double()(graph())


@pytest.mark.parametrize("preset", PRESETS)
def test_targets_without_numbers_are_refused_and_the_weights_stay(preset):
    graph = particles()
    model = build_model(preset, like=graph).double()
    broken = some_target(graph).replace(x=torch.full_like(graph.x[:, :1], torch.nan))
    with pytest.raises(InputError, match="targets: no penalty has a finite error; look for NaN"):
        model.solve([(graph, broken)], [(graph, broken)])
    assert not model.position.any()


def test_an_error_is_never_negative():
    graph = particles(B=40)
    line = StraightLine()(graph)
    for seed in range(5):
        move = torch.randn(2, generator=torch.Generator().manual_seed(seed)).double()
        target = Forecast(line.x + move[0] * (graph.x[:, -1:] - graph.x[:, :1]), line.v)
        model = build_model("ridge", like=graph).double()
        assert 0 <= model.solve([(graph, target)], [(graph, target)]) < 1e-12


def test_too_many_nodes_are_pointed_to_the_shared_form():
    with pytest.raises(InputError, match=r"36,751 vectors, .* use ridge-shared"):
        Ridge(3341, 10)


@needs_cmu
@pytest.mark.parametrize(("motion", "most"), [("walk", 0.0350), ("basketball", 0.800)])
def test_on_people_it_is_as_good_as_promised(motion, most):
    task = load_task(f"mocap-{motion}")
    model = build_model("ridge", like=task.train[:1][0])
    fit(model, task)
    found, _ = measure_errors(model, task.test, 100)
    assert 10 * float(found.position.mean()) <= most
