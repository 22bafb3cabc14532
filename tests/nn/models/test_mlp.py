import pytest
import torch

from spacetime_en import InputError, build_model
from tests.helpers import particles


def test_mlp_is_a_network_per_node_and_frame_then_a_mean():
    torch.manual_seed(0)
    model = build_model("mlp").double()
    graph = particles(L=3)
    outs = [model.network(torch.cat([graph.x[1, t, 2], graph.v[1, t, 2]])) for t in range(3)]
    mean = sum(outs) / 3
    torch.testing.assert_close(model(graph).x[1, 0, 2], mean[:3])
    torch.testing.assert_close(model(graph).v[1, 0, 2], mean[3:])


def test_mlp_is_tied_to_its_number_of_dimensions():
    with pytest.raises(InputError, match="tied to n = 3 space dimensions, the graph has 2"):
        build_model("mlp").double()(particles(n=2))
