"""Dataclasses of tensors, and what becomes a tensor."""

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from spacetime_en import InputError
from spacetime_en._util.tensors import as_tensor, evenly_spaced_indices
from tests.helpers import particles


def test_arrays_of_any_layout_become_tensors():
    array = np.arange(6.0).reshape(2, 3)
    for layout in (
        array,
        array[:, ::-1],
        array.astype(">f8"),
        array.tolist(),
        list(map(list, array)),
    ):
        assert torch.equal(as_tensor("x", layout), torch.tensor(np.array(layout, dtype="f8")))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([[1.0], [1.0, 2.0]], "join them with spacetime_en.collate"),
        ([torch.ones(1), torch.ones(2)], "join them with spacetime_en.collate"),
        ("text", "x: expected numbers"),
        (torch.ones(1, dtype=torch.complex64), "expected a dense tensor of real numbers"),
        (np.ma.masked_array([1.0], [True]), "some values are masked"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(value, sentence):
    with pytest.raises(InputError, match=sentence):
        as_tensor("x", value)


def test_a_cast_leaves_masks_indices_and_times_alone():
    graph = particles(neighbours=torch.tensor([[1], [0], [3], [2]]), edge_attr=None)
    single = graph.to(torch.float32)
    assert (single.x.dtype, single.times.dtype) == (torch.float32, torch.float64)
    assert single.neighbours.dtype == torch.int64


def test_a_graph_is_a_tree_of_its_tensors():
    graph = particles()
    leaves, tree = pytree.tree_flatten(graph)
    assert len(leaves) == len(graph.fields())
    assert torch.equal(pytree.tree_unflatten(leaves, tree).x, graph.x)


def test_indices_come_from_all_over_and_each_once():
    assert evenly_spaced_indices(3, 10).tolist() == [0, 1, 2]
    indices = evenly_spaced_indices(1000, 5).tolist()
    assert indices[0] == 0
    assert indices[-1] == 999
    assert len(set(indices)) == 5
