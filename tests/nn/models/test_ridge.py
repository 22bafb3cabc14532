"""Ridge regression in closed form: the normal equations, equivariant, the same signature."""

import dataclasses

import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, build_model
from spacetime_en.data import load_task
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.models.ridge import Ridge, SharedRidge
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.testing import assert_equivariant
from spacetime_en.training import fit
from tests.data.cmu import needs_cmu
from tests.helpers import masked, particles, random_neighbours

PRESETS = ("ridge", "ridge-shared")


def solved(preset, graph, target):
    model = build_model(preset, like=graph).double()
    model.solve([(graph, target)], [(graph, target)])
    return model


def some_target(graph, seed=0):
    g = torch.Generator().manual_seed(seed)
    shape = graph.x[:, 0].shape
    noise = torch.randn(2, *shape, generator=g, dtype=graph.x.dtype)
    return Forecast(graph.x[:, -1] + noise[0], noise[1])


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
        x, v, tau = graph.x[b], graph.v[b], graph.horizon[b]
        for c in range(3):
            row = [x[-1, j, c] - x[t, j, c] for t in range(2) for j in range(2)]
            row += [x[-1, j, c] - (x[-1, 0, c] + x[-1, 1, c]) / 2 for j in range(2)]
            row += [tau * v[-1, j, c] for j in range(2)]
            rows.append(torch.stack(row))
            values.append(target.x[b, :, c] - x[-1, :, c] - tau * v[-1, :, c])
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
        tau = graph.horizon[:, None, None]
        last, before = graph.x[:, -1], graph.x[:, -2]
        offset = last - last.mean(1, keepdim=True)
        line = tau * graph.v[:, -1]
        return Forecast(
            last + line + 0.7 * (last - before) + 0.3 * offset, (line - 0.2 * offset) / tau
        )

    train, test = particles(B=60, seed=1), particles(B=5, seed=2)
    model = solved(preset, train, law(train))
    assert torch.allclose(model(test).x, law(test).x, atol=1e-5)
    assert torch.allclose(model(test).v, law(test).v, atol=1e-5)


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


@pytest.mark.parametrize(
    ("make", "graph", "sentence"),
    [
        (lambda: Ridge(4, 5), particles, r"tied to 5 frames.* has 3; build it with"),
        (lambda: Ridge(5, 3), particles, "tied to N = 5 nodes"),
        (lambda: Ridge(5, 5), masked, "all of them observed.* with gaps"),
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
    broken = some_target(graph).replace(x=torch.full_like(graph.x[:, 0], torch.nan))
    with pytest.raises(InputError, match="targets: no penalty has a finite error; look for NaN"):
        model.solve([(graph, broken)], [(graph, broken)])
    assert not model.position.any()


def test_an_error_is_never_negative():
    graph = particles(B=40)
    line = StraightLine()(graph)
    for seed in range(5):
        move = torch.randn(2, generator=torch.Generator().manual_seed(seed)).double()
        target = Forecast(line.x + move[0] * (graph.x[:, -1] - graph.x[:, 0]), line.v)
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
