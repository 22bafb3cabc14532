"""What Tensor Field Networks and SE(3)-Transformers share."""

import copy
import sys

import pytest
import torch

from spacetime_en import InputError
from spacetime_en.geometry import random_orthogonal
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.se3_transformer import SE3Transformer
from spacetime_en.nn.layers.steerable import Message, paths_of
from spacetime_en.nn.layers.tfn import TensorFieldNetwork
from tests.helpers import masked, particles, random_neighbours
from tests.nn.layers.test_egcl import inputs

PARTS = [TensorFieldNetwork, SE3Transformer]


def network(part, features=2, lmax=1, **options):
    torch.manual_seed(0)
    net = part(features, 1, 4 * (lmax + 1) ** 2, 2, True, lmax=lmax, **options)
    torch.nn.init.normal_(net.readout.weight)
    return net


def orthogonal(determinant):
    q = random_orthogonal(3, torch.Generator().manual_seed(1))
    return q if torch.linalg.det(q).sign() == determinant else -q


def turning(q, channels, lmax):
    """The matrix that turns a node's features, from how harmonics of 20 directions turn.

    (e3nn's own Wigner matrices are of single precision.)
    """
    from e3nn.o3 import spherical_harmonics

    x = torch.randn(20, 3, dtype=torch.float64)
    blocks = []
    for degree in range(lmax + 1):
        here, there = (spherical_harmonics(degree, t, normalize=False) for t in (x, x @ q.T))
        blocks += [torch.linalg.lstsq(here, there).solution.T] * channels
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("lmax", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_features_of_every_degree_turn_as_they_say(part, lmax, determinant):
    """Features of degree l turn as spherical harmonics do, reflections included."""
    net = network(part, lmax=lmax).double()
    graph, q = particles(B=2, L=1), orthogonal(determinant)
    D = turning(q, 4, lmax)
    f = torch.randn(2, 1, 4, len(D), dtype=torch.float64)
    h, x, v, a = inputs(graph, 2, 1)

    def layer(f, x):
        seen = []
        handle = net.layers[0].register_forward_pre_hook(lambda _, given: seen.append(given[1]))
        net(h, x, v, a, Neighbourhood.of(graph))
        handle.remove()
        return net.layers[0](f, seen[0])

    torch.testing.assert_close(layer(f @ D.T, x @ q.T), layer(f, x) @ D.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_outputs_turn_and_move_with_the_graph(part, up):
    net = network(part, lmax=2, up=up).double()
    graph, q = particles(B=2, L=2), orthogonal(-1)
    h, x, v, a = inputs(graph, 2, 1)
    u = torch.tensor([0.0, 0.6, 0.8], dtype=torch.float64).expand(2, 1, 1, 3)
    ups = [(u,), (u @ q.T,)] if up else [(), ()]
    edges, b = Neighbourhood.of(graph), torch.tensor([3.0, -5.0, 9.0], dtype=torch.float64)
    h0, x0, v0 = net(h, x, v, a, edges, *ups[0])
    h1, x1, v1 = net(h, x @ q.T + b, v @ q.T, a, edges, *ups[1])
    for found, expected in ((h1, h0), (x1, x0 @ q.T + b), (v1, v0 @ q.T)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    if up:
        assert (net(h, x, v, a, edges, u @ q.T)[1] - x0).abs().max() > 1e-3


def test_paths_are_those_of_angular_momentum_that_keep_parity():
    assert paths_of(1) == [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
    assert len(paths_of(2)) == 11


@pytest.mark.parametrize("part", PARTS)
def test_there_are_no_messages_from_or_to_nodes_that_are_not_there(part):
    """In every frame the graph of the nodes that were observed in it gives the same."""
    graph, net = masked(), network(part).double()
    h, _, _, a = inputs(graph, 2, 1)
    x, v = (t.nan_to_num() for t in (graph.x, graph.v))
    found = net(h, x, v, a, Neighbourhood.of(graph))
    for b, t in ((0, 0), (1, 1), (2, 3)):
        i = graph.observed[b, t].nonzero()[:, 0]
        alone = particles(B=1, L=1, N=len(i))
        part_of = (s[b, t, i][None, None] for s in (h, x, v))
        expected = net(*part_of, a[b, t, i][:, i][None, None], Neighbourhood.of(alone))
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have[b, t, i], want[0, 0])


@pytest.mark.parametrize("part", PARTS)
def test_a_list_of_all_neighbours_is_the_complete_graph(part):
    net, N = network(part).double(), 4
    everyone = torch.tensor([[j for j in range(N) if j != i] for i in range(N)])
    dense, listed = particles(), particles(neighbours=everyone)
    h, x, v, a = inputs(dense, 2, 1)
    a_listed = a.gather(3, everyone[..., None].expand(*a.shape[:2], N, N - 1, 1))
    found = net(h, x, v, a_listed, Neighbourhood.of(listed))
    expected = net(h, x, v, a, Neighbourhood.of(dense))
    for have, want in zip(found, expected, strict=True):
        torch.testing.assert_close(have, want)
    few = particles(neighbours=random_neighbours(N, 2))
    h, x, v, a = inputs(few, 2, 1)
    assert (net(h, x, v, a, Neighbourhood.of(few))[1] - expected[1]).abs().max() > 1e-3


@pytest.mark.parametrize("n", [1, 2, 5])
def test_other_spaces_are_refused(n):
    graph = particles(n=n)
    h, x, v, a = inputs(graph, 2, 1)
    with pytest.raises(InputError, match=f"x: spherical harmonics need n = 3 .* has {n}; take"):
        network(TensorFieldNetwork).double()(h, x, v, a, Neighbourhood.of(graph))


def test_constants_are_exact_in_the_precision_that_the_weights_get_later():
    graph = particles(B=1, L=1)
    h, x, v, a = inputs(graph, 2, 1)
    edges = Neighbourhood.of(graph)
    net = network(TensorFieldNetwork, lmax=2)
    weights = {name: weight.double() for name, weight in net.state_dict().items()}
    loaded = network(TensorFieldNetwork, lmax=2)
    loaded.load_state_dict(weights, assign=True)
    (product,) = network(TensorFieldNetwork, lmax=2).layers[0].value._product
    assert {t.dtype for t in product.buffers()} == {torch.float32}
    expected = net.double()(h, x, v, a, edges)
    for other in (loaded, copy.deepcopy(net), net.float().double()):
        for have, want in zip(other(h, x, v, a, edges), expected, strict=True):
            assert torch.equal(have, want)


def test_files_hold_weights_alone():
    net = network(SE3Transformer, lmax=2)
    assert set(net.state_dict()) == {name for name, _ in net.named_parameters()}


def test_layers_of_the_same_sizes_share_what_e3nn_compiles():
    one, other = Message(4, 1, 2), Message(4, 1, 2)
    assert one._product[0] is other._product[0]
    assert one.double()._product[0] is not other._product[0]


def test_without_e3nn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "e3nn", None)
    with pytest.raises(ImportError, match=r"needs the package e3nn: pip install 'spacetime-en\[e3"):
        network(TensorFieldNetwork)
