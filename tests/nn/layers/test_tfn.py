import pytest
import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.tfn import TensorFieldNetwork
from tests import reference
from tests.helpers import particles
from tests.nn.layers.test_egcl import inputs


def check_equations(part, lmax, residual):
    """A spatial part of two layers, with two channels of each degree, is what the loops say."""
    torch.manual_seed(0)
    graph = particles(B=1, L=1, N=3)
    net = part(2, 1, 2 * (lmax + 1) ** 2, 2, residual, lmax=lmax).double()
    torch.nn.init.normal_(net.readout.weight)
    h, x, v, a = inputs(graph, 2, 1)
    found = net(h, x, v, a, Neighbourhood.of(graph))
    frame = (t[0, 0] for t in (h, x, v, a))
    for have, want in zip(found, reference.steerable_network(net, *frame, 2, lmax), strict=True):
        torch.testing.assert_close(have[0, 0], want)


@pytest.mark.parametrize(("lmax", "residual"), [(1, True), (1, False), (2, True)])
def test_a_tensor_field_network_is_its_equations(lmax, residual):
    check_equations(TensorFieldNetwork, lmax, residual)
