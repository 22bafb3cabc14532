"""A second-order graph network: a straight line when built, and forces of many bodies."""

import pytest
import torch

from spacetime_en import InputError, build_model
from tests.helpers import liven, particles


def test_as_built_it_is_the_straight_line():
    graph = particles(horizon=2.0)
    fresh, line = (build_model(name).double()(graph) for name in ("segno", "straight-line"))
    torch.testing.assert_close(fresh.x, line.x)


def test_forces_are_those_of_many_bodies():
    """A third body changes what two do to each other; it has no energy to report."""
    graph = particles(L=1, B=1, N=3, horizon=0.1)
    torch.manual_seed(0)
    model = liven(build_model("segno", hidden=8, steps=1, step_fraction=None)).double().eval()

    def pull(away):
        moved = graph.x.clone()
        moved[:, :, 2] += away
        alone = torch.tensor([[1], [0], [-1]])
        lists = {"neighbours": torch.tensor([[1, 2], [0, 2], [0, 1]]), "edge_attr": None}
        pairs = {"neighbours": alone, "edge_attr": None}
        both, two = (model(graph.replace(x=moved, **kind)).v[0, 0, 0] for kind in (lists, pairs))
        return both - two

    model = liven(build_model("segno", edge_features=0, hidden=8, steps=1)).double().eval()
    assert (pull(0.0) - pull(0.5)).abs().max() > 1e-4
    assert model.energy(graph.replace(edge_attr=None)) is None


def test_bad_settings_are_named():
    with pytest.raises(InputError, match="layers"):
        build_model("segno", layers=0)
