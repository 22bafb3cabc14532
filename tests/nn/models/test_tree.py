"""Joints and bones: which bone leads where, and what the two sides have twice."""

import pytest
import torch

from spacetime_en import InputError, build_model
from spacetime_en.nn.models.tree import Tree, parents_of
from tests.nn.samples import MIRROR, PARENTS, bodies


def test_the_tree_is_found_from_the_bones_and_its_sides_from_the_tree():
    assert parents_of(bodies().edge_attr[0, 0, ..., 0]) == PARENTS
    assert Tree(PARENTS, 8).mirror == MIRROR
    assert build_model("body", like=bodies()).config["up"]


def test_bones_and_joints_are_the_same_thing():
    x = torch.randn(2, 3, 8, 3, dtype=torch.float64)
    tree = Tree(PARENTS, 8).double()
    bones = tree.bones(x)
    assert torch.allclose(bones[..., 4, :], x[..., 4, :] - x[..., 3, :])
    assert torch.equal(bones[..., 0, :], x[..., 0, :])
    assert torch.allclose(tree.joints(bones), x)


def test_mirrored_twice_nothing_has_happened():
    graph, tree = bodies(), Tree(PARENTS, 8)
    there = tree.mirrored(graph)
    assert torch.equal(there.v[:, :, 3], graph.v[:, :, 1])
    assert torch.equal(there.x[:, :, 0], graph.x[:, :, 0])
    assert torch.equal(tree.mirrored(there).x, graph.x)


def test_graphs_that_are_no_skeletons_have_no_bones():
    bones = torch.zeros(6, 6)
    for a, b in ((0, 1), (1, 2), (3, 4), (4, 5)):  # two people
        bones[a, b] = bones[b, a] = 1
    charges = torch.tensor([1.0, -1, 1, -1, -1, 1])
    ring = torch.roll(torch.eye(6), 1, 0) + torch.roll(torch.eye(6), -1, 0)
    for pairs in (bones, charges[:, None] * charges, ring):
        assert parents_of(pairs) is None
    assert Tree(None, 3).mirror == [0, 1, 2]


@pytest.mark.parametrize(
    ("parents", "sentence"),
    [
        ([0, 0], "parents: expected 3 numbers of joints"),
        ([0, 2, 1], "joint 1 does not hang on a root"),
        ([1, 1, 1], "parents: expected joint 0 as the root"),
    ],
)
def test_what_is_no_tree_is_refused(parents, sentence):
    with pytest.raises(InputError, match=sentence):
        Tree(parents, 3)
