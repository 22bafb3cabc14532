import pytest
import torch

from spacetime_en import build_model
from tests import reference
from tests.helpers import liven, particles


def test_egnn_is_the_spatial_network_on_every_frame_then_a_mean():
    torch.manual_seed(0)
    model = liven(build_model("egnn", hidden=8, layers=2)).double()
    graph = particles(B=1, L=3)
    xs, vs = [], []
    for t in range(3):
        a = reference.edges(graph.edge_attr[0, 0], graph.x[0, t])
        _, x, v = reference.egnn(model.egnn, graph.h[0, t], graph.x[0, t], graph.v[0, t], a)
        xs.append(x)
        vs.append(v)
    torch.testing.assert_close(model(graph).x[0, 0], sum(xs) / 3)
    torch.testing.assert_close(model(graph).v[0, 0], sum(vs) / 3)


@pytest.mark.parametrize("preset", ["tfn", "se3-transformer"])
def test_other_spatial_parts_stand_in_its_place(preset):
    """As above: one part, on every frame, then a mean."""
    torch.manual_seed(0)
    model = liven(build_model(preset, hidden=4, layers=1)).double()
    graph = particles(B=1, L=3, N=3)
    xs, vs = [], []
    for t in range(3):
        a = reference.edges(graph.edge_attr[0, 0], graph.x[0, t])
        frame = graph.h[0, t], graph.x[0, t], graph.v[0, t], a
        _, x, v = reference.steerable_network(model.egnn, *frame, channels=1, lmax=1)
        xs.append(x)
        vs.append(v)
    torch.testing.assert_close(model(graph).x[0, 0], sum(xs) / 3)
    torch.testing.assert_close(model(graph).v[0, 0], sum(vs) / 3)
