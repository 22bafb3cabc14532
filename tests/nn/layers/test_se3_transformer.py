import pytest
import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.se3_transformer import SE3AttentionLayer, SE3Transformer
from spacetime_en.nn.layers.steerable import SteerableEdges
from tests.helpers import particles
from tests.nn.layers.test_tfn import check_equations


@pytest.mark.parametrize("lmax", [1, 2])
def test_an_se3_transformer_is_its_equations(lmax):
    check_equations(SE3Transformer, lmax, residual=True)


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
