"""Joints on a tree of bones: equivariant, symmetric between sides, calibrated on data."""

import numpy as np
import pytest
import torch

from spacetime_en import Forecaster, InputError, SpacetimeGraph, build_model
from spacetime_en.data import Task, Trajectories
from spacetime_en.nn.baselines import StraightLine
from spacetime_en.nn.body import Body, _Tree, parents_of
from spacetime_en.testing import equivariance_errors
from spacetime_en.training import fit

#        0 root, two legs of two bones, a neck and a head with two ears
PARENTS = [0, 0, 1, 0, 3, 0, 5, 5]
MIRROR = [0, 3, 4, 1, 2, 5, 7, 6]
UP = [0.0, 1.0, 0.0]


def bodies(B=6, L=5, seed=0, up=True, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(B, L, 8, 3, generator=g, dtype=torch.float64).cumsum(1)
    bones = torch.zeros(8, 8, 1)
    for child, parent in enumerate(PARENTS):
        if child != parent:
            bones[child, parent] = bones[parent, child] = 1
    options = {"up": UP} if up else {}
    return SpacetimeGraph.from_positions(x.to(dtype), edge_attr=bones, horizon=2.0, **options)


def lively(graph, **settings):
    torch.manual_seed(0)
    model = build_model("body", like=graph, hidden=8, context=5, **settings).double()
    model.calibrate(graph)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def test_the_tree_is_found_from_the_bones_and_its_sides_from_the_tree():
    assert parents_of(bodies().edge_attr[0, 0, ..., 0]) == PARENTS
    assert _Tree(PARENTS, 8).mirror == MIRROR
    assert build_model("body", like=bodies()).config["up"]


def test_bones_and_joints_are_the_same_thing():
    x = torch.randn(2, 3, 8, 3, dtype=torch.float64)
    tree = _Tree(PARENTS, 8).double()
    bones = tree.bones(x)
    assert torch.allclose(bones[..., 4, :], x[..., 4, :] - x[..., 3, :])
    assert torch.equal(bones[..., 0, :], x[..., 0, :])
    assert torch.allclose(tree.joints(bones), x)


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
        same = torch.allclose(there.x, here.x[:, MIRROR], atol=1e-10)
        assert same == mirrored


def test_as_built_bones_go_on_as_they_did():
    graph = bodies()
    model = build_model("body", like=graph).double().eval()
    model.calibrate(graph)
    assert torch.allclose(model(graph).x, StraightLine()(graph).x, atol=1e-9)
    assert torch.allclose(model(graph).v, StraightLine()(graph).v, atol=1e-9)


def test_calibrated_the_networks_see_numbers_of_order_one_in_any_unit():
    graph = bodies(B=200)
    model = lively(graph)
    scaled = graph.replace(x=graph.x * 1e3, v=graph.v * 1e3)
    other = lively(scaled)
    here, there = 1e3 * model(graph).x, other(scaled).x
    assert (there - here).norm() < 1e-3 * here.norm()


def test_it_learns_what_turning_bones_do_and_comes_back_from_disk(tmp_path):
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
    task = Task.from_trajectories(data, length=4, stride=1, horizon=1)
    torch.manual_seed(0)
    model = build_model("body", like=task.train[:1][0], hidden=16, mirrored=False)
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
        ({"nodes": 3, "parents": [0, 0]}, "parents: expected 3 numbers of joints"),
        ({"nodes": 3, "parents": [0, 2, 1]}, "joint 1 does not hang on a root"),
        ({"nodes": 3, "parents": [1, 1, 1]}, "parents: expected joint 0 as the root"),
        ({"nodes": 3, "frames": 1}, "frames: a body needs at least two"),
        ({"nodes": 3, "dropout": 1.5}, "dropout: expected a share"),
    ],
)
def test_what_is_no_body_is_refused(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        Body(**settings)


def test_graphs_that_are_no_skeletons_have_no_bones_and_boxes_are_refused():
    bones = torch.zeros(6, 6)
    for a, b in ((0, 1), (1, 2), (3, 4), (4, 5)):  # two people
        bones[a, b] = bones[b, a] = 1
    charges = torch.tensor([1.0, -1, 1, -1, -1, 1])
    ring = torch.roll(torch.eye(6), 1, 0) + torch.roll(torch.eye(6), -1, 0)
    for pairs in (bones, charges[:, None] * charges, ring):
        assert parents_of(pairs) is None
    with pytest.raises(InputError, match="box: bones connect joints that are near"):
        lively(bodies())(bodies().replace(box=[40.0] * 3))
    with pytest.raises(InputError, match="horizon: this model needs a time ahead"):
        lively(bodies())(bodies().replace(horizon=0.0))


def test_one_body_is_enough_to_be_calibrated_on():
    model = build_model("body", like=bodies(), hidden=8, mirrored=False).double()
    model.calibrate(bodies(B=1))
    assert model(bodies()).x.isfinite().all()


def test_a_graph_without_the_direction_is_refused():
    with pytest.raises(InputError, match="up direction"):
        lively(bodies())(bodies(up=False))
