"""Joints on a tree of bones: equivariant, symmetric between sides, calibrated on data."""

import numpy as np
import pytest
import torch

from spacetime_en import Forecast, Forecaster, InputError, build_model
from spacetime_en.data import Task, Trajectories
from spacetime_en.nn.models.body import Body
from spacetime_en.nn.models.trivial import StraightLine
from spacetime_en.testing import equivariance_errors
from spacetime_en.training import fit
from tests.nn.samples import MIRROR, PARENTS, bodies


def moved(graph):
    """Some targets: a pose of the same bodies a step later, bent."""
    last = graph.x[:, -1:]
    return Forecast(last + 1.3 * (last - graph.x[:, -2:-1]) + 0.1 * last.abs(), graph.v[:, -1:])


def calibrate(model, graph):
    model.calibrate((graph, moved(graph)), (graph, moved(graph)))


def lively(graph, **settings):
    torch.manual_seed(0)
    model = build_model("body", like=graph, hidden=8, context=5, **settings).double()
    calibrate(model, graph)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("mirrored", [True, False])
def test_it_turns_and_shifts_with_the_body_to_rounding(up, mirrored):
    graph = bodies(up=up)
    model = lively(graph, mirrored=mirrored)
    found = equivariance_errors(model, graph)
    assert max(found.translation, found.rotation) < 1e-10
    assert found.permutation > 1e-3


def test_what_one_side_does_the_other_could_do():
    graph = bodies()
    swapped = graph.permute(torch.tensor(MIRROR))
    for mirrored in (True, False):
        model = lively(graph, mirrored=mirrored)
        here, there = model(graph), model(swapped)
        same = torch.allclose(there.x, here.x[:, :, MIRROR], atol=1e-10)
        assert same == mirrored


def test_forecasts_are_part_memory_and_training_is_without_it():
    graph, other = bodies(B=20), bodies(seed=1)
    model = lively(graph, memory=0.3, dropout=0.0, mirrored=False)
    known, found = model.memory(other), model._by_networks(other)
    assert (known.x - found.x).abs().min() > 0
    torch.testing.assert_close(model(other).x, 0.3 * known.x + 0.7 * found.x)
    torch.testing.assert_close(model(other).v, 0.3 * known.v + 0.7 * found.v)
    torch.testing.assert_close(model.train()(other).x, found.x)
    model.losses(other, moved(other), alpha=1.0).sum().backward()
    assert all(p.grad is None for p in model.memory.parameters())
    # What the memory says is what kernel regression says.
    kernel = build_model("kernel", like=graph).double()
    kernel.solve([(graph, moved(graph))], [(graph, moved(graph))])
    torch.testing.assert_close(known.x, kernel(other).x)


def test_of_a_path_it_learns_the_first_step():
    graph = bodies(B=20).replace(horizon=1.0)
    path = graph.replace(horizon=torch.tensor([[1.0, 2.0]]).expand(20, 2))
    target = moved(graph)
    twice = Forecast(*(torch.cat([t, t + 1], 1) for t in (target.x, target.v)))
    one, other = (build_model("body", like=graph, hidden=8).double().eval() for _ in range(2))
    one.calibrate((graph, target), (graph, target))
    other.calibrate((path, twice), (path, twice))
    torch.testing.assert_close(one.memory(graph).x, other.memory(graph).x)
    late = path.replace(horizon=path.horizon + 1)
    with pytest.raises(InputError, match=r"horizon: .* learns the step from the first one"):
        other.calibrate((late, twice), (late, twice))


def test_as_built_bones_go_on_as_they_did():
    graph = bodies()
    model = build_model("body", like=graph, memory=0.0).double().eval()
    calibrate(model, graph)
    assert torch.allclose(model(graph).x, StraightLine()(graph).x, atol=1e-9)
    assert torch.allclose(model(graph).v, StraightLine()(graph).v, atol=1e-9)


def test_calibrated_the_networks_see_numbers_of_order_one_in_any_unit():
    graph = bodies(B=200)
    model = lively(graph)
    scaled = graph.replace(x=graph.x * 1e3, v=graph.v * 1e3)
    other = lively(scaled)
    here, there = 1e3 * model(graph).x, other(scaled).x
    assert (there - here).norm() < 1e-3 * here.norm()


@pytest.mark.parametrize("memory", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_it_learns_what_turning_bones_do_and_comes_back_from_disk(tmp_path, memory):
    """A body whose limbs turn at their own speeds: straight lines miss, it does not."""
    rng = np.random.default_rng(0)
    t = np.arange(60)[:, None] * rng.uniform(0.2, 0.5, 7) + rng.uniform(0, 6, (40, 1, 7))
    bones = np.stack([np.cos(t), np.sin(t), np.full_like(t, 0.3)], axis=-1)  # (40, 60, 7, 3)
    x = np.zeros((40, 60, 8, 3))
    for joint in range(1, 8):
        x[:, :, joint] = x[:, :, PARENTS[joint]] + bones[:, :, joint - 1]
    pairs = np.zeros((40, 8, 8))
    for child, parent in enumerate(PARENTS[1:], start=1):
        pairs[:, child, parent] = pairs[:, parent, child] = 1
    data = Trajectories.from_arrays(x, attributes={"bone": pairs})
    task = Task.from_trajectories(data, length=4, stride=1, target_steps=1)
    torch.manual_seed(0)
    model = build_model("body", like=task.train[:1][0], hidden=16, mirrored=False, memory=memory)
    progress = fit(model, task, lr=1e-2, steps=150, alpha=0.0, display=False)
    graph, target = task.val[:200]
    straight = (StraightLine()(graph).x - target.x).square().mean()
    assert progress.best < 0.2 * straight
    model.save_pretrained(tmp_path / "m")
    again = Forecaster.from_pretrained(tmp_path / "m")
    assert torch.equal(again(graph).x, model(graph).x)  # what was measured is saved along


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"nodes": 3, "frames": 1}, "frames: a body needs at least two"),
        ({"nodes": 3, "dropout": 1.5}, "dropout: expected a number from 0"),
        ({"nodes": 3, "memory": -0.1}, "memory: expected a number from 0"),
    ],
)
def test_what_is_no_body_is_refused(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        Body(**settings)


def test_boxes_and_no_time_ahead_are_refused():
    with pytest.raises(InputError, match="box: bones connect joints that are near"):
        lively(bodies())(bodies().replace(box=[40.0] * 3))
    with pytest.raises(InputError, match="horizon: this model needs a time ahead"):
        lively(bodies())(bodies().replace(horizon=0.0))


def test_one_body_is_enough_to_be_calibrated_on_even_if_it_rests():
    graph = bodies(B=1)
    still = graph.replace(x=graph.x[:, :1].expand_as(graph.x), v=torch.zeros_like(graph.v))
    for one in (graph, still):
        model = build_model("body", like=graph, hidden=8, mirrored=False).double().eval()
        calibrate(model, one)
        found = equivariance_errors(model, bodies())
        assert max(found.translation, found.rotation) < 1e-9


def test_a_graph_without_the_direction_is_refused():
    with pytest.raises(InputError, match="up direction"):
        lively(bodies())(bodies(up=False))
