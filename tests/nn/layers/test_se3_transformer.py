import pytest
import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.se3_transformer import SE3AttentionLayer, SE3Transformer
from spacetime_en.nn.layers.steerable import SteerableEdges
from tests import reference
from tests.helpers import particles
from tests.nn.layers.test_egcl import inputs


@pytest.mark.parametrize(("lmax", "residual"), [(1, True), (2, True)])
def test_an_se3_transformer_is_its_equations(lmax, residual):
    torch.manual_seed(0)
    graph = particles(B=1, L=1, N=3)
    hidden = 2 * (lmax + 1) ** 2
    net = SE3Transformer(2, 1, hidden, 2, residual, lmax=lmax).double()
    torch.nn.init.normal_(net.readout.weight)
    h, x, v, a = inputs(graph, 2, 1)
    found = net(h, x, v, a, Neighbourhood.of(graph))
    frame = (t[0, 0] for t in (h, x, v, a))
    for have, want in zip(found, reference.steerable_network(net, *frame, 2, lmax), strict=True):
        torch.testing.assert_close(have[0, 0], want)


def test_attention_is_of_weights_that_sum_to_one_in_each_head():
    """With messages that are the same from all nodes, what is collected is the message."""
    torch.manual_seed(0)
    graph = particles(B=1, L=1, N=4)
    layer = SE3AttentionLayer(5, 1, 2, True).double()
    x = torch.zeros_like(graph.x)  # everybody at one point, with the same features
    f = torch.randn(20, dtype=torch.float64).expand(1, 1, 4, -1)
    s = torch.rand(2, dtype=torch.float64).expand(1, 1, 4, 4, -1)
    y = torch.zeros(1, 1, 4, 4, 4, dtype=torch.float64)
    y[..., 0] = 1
    edges = SteerableEdges(y, s, Neighbourhood.of(graph.replace(x=x)))
    torch.testing.assert_close(layer.collect(f, edges), layer.value(f, edges)[:, :, :, 0])
