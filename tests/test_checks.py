"""Values that would turn a forecast into NaN are refused when a graph is built."""

import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph

X = torch.randn(2, 3, 4, 3, generator=torch.Generator().manual_seed(0))
HOLE = X.clone()
HOLE[1, 2, 0, 1] = torch.nan
FRAMES = torch.tensor([[True, True, True], [True, True, False]])[..., None]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (dict(x=HOLE), "x: 1 node.* the first at graph 1, frame 2, node 0"),
        (dict(v=HOLE), "v: 1 node"),
        (dict(observed=torch.zeros(2, 3, 4) > 0), "graph 0 of the batch has no True"),
        (dict(neighbours=torch.tensor([[4], [0], [0], [0]])), "found node 4, expected 0 to 3"),
        (dict(times=torch.tensor([0.0, 2.0, 1.0])), "increasing order of time"),
        (dict(horizon=torch.tensor(-1.0)), "expected a time ahead"),
        (dict(horizon=torch.tensor([[1.0, 1.0]] * 2)), "target times in increasing order"),
        (dict(box=torch.eye(3)[None, [0, 0, 2]]), "volume"),
    ],
)
def test_bad_values_are_refused_by_name_and_place(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        SpacetimeGraph(**{"x": X, "v": X} | fields)


def test_what_is_masked_may_be_anything():
    times = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 0.5]])
    SpacetimeGraph(HOLE, HOLE, observed=FRAMES, times=times)


def test_a_node_that_is_missing_in_one_frame_may_be_anything_there():
    seen = torch.ones(2, 3, 4, dtype=torch.bool)
    seen[1, 2, 0] = False
    SpacetimeGraph(HOLE, HOLE, observed=seen)
    seen[1, 2] = torch.tensor([True, False, True, True])
    with pytest.raises(InputError, match=r"x: 1 node.* say in observed which nodes were there"):
        SpacetimeGraph(HOLE, X, observed=seen)
