"""Functions of independent rows, piece by piece, and an EGNN that goes through its frames so."""

import pytest
import torch
from torch import nn

from spacetime_en.nn.layers import egcl
from spacetime_en.nn.layers.egcl import EGNN
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.pieces import by_pieces
from spacetime_en.nn.physics import force
from spacetime_en.nn.physics.force import PairForce
from tests.helpers import particles, random_neighbours

CUTS = [2, 3, 7]


def curve(w, first, x, y):
    return (x @ w).sin() * y, x.sum(1)


@pytest.fixture
def rows():
    draw = torch.Generator().manual_seed(0)
    shapes = ((7, 3), (7, 2), (3, 2))
    return [torch.randn(s, generator=draw, dtype=torch.double).requires_grad_() for s in shapes]


def pieced(x, y, w):
    return by_pieces(lambda first, x, y: curve(w, first, x, y), CUTS, (x, y), (w,))


@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_function_and_its_derivatives(set_threads, rows, number):
    set_threads(number)
    x, y, w = rows
    for have, want in zip(pieced(x, y, w), curve(w, 0, x, y), strict=True):
        torch.testing.assert_close(have, want)
    assert torch.autograd.gradcheck(pieced, rows)
    assert torch.autograd.gradgradcheck(pieced, rows)


def test_every_piece_knows_its_first_row():
    rows = torch.zeros(7)
    (found,) = by_pieces(lambda first, t: (t + first,), CUTS, (rows,), ())
    assert found.tolist() == [0, 0, 2, 3, 3, 3, 3]


def test_twice_through_a_graph_only_if_it_is_kept(set_threads, rows):
    set_threads(2)
    total = sum(t.sum() for t in pieced(*rows))
    first = torch.autograd.grad(total, rows, retain_graph=True)
    for have, want in zip(torch.autograd.grad(total, rows), first, strict=True):
        assert torch.equal(have, want)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(total, rows)


def test_what_needs_no_gradient_gets_none(set_threads, rows):
    set_threads(2)
    x, y, w = rows
    _, sums = pieced(x, y.detach(), w)  # which depend on x alone
    sums.sum().backward()
    assert x.grad is not None
    assert y.grad is None
    assert w.grad is None


def test_modes_of_the_caller(set_threads, rows):
    set_threads(2)
    with torch.inference_mode():
        assert all(t.is_inference() for t in pieced(*rows))
    with torch.no_grad():
        found = pieced(*rows)
    assert not any(t.is_inference() or t.requires_grad for t in found)
    assert all(t.requires_grad and not t.is_inference() for t in pieced(*rows))


def test_gradients_can_be_written_to(set_threads, rows):
    """As optimisers do."""
    set_threads(2)
    sum(t.sum() for t in pieced(*rows)).backward()
    for t in rows:
        t.grad.mul_(2)


# --- an EGNN --------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(egcl, "CPU_CHUNK_BYTES", 2**14)


def values_and_gradients(egnn, graph, up=None):
    x, v = (t.clone().requires_grad_() for t in (graph.x, graph.v))
    h = graph.v.norm(dim=-1, keepdim=True).requires_grad_()
    edges = Neighbourhood.of(graph)
    a = torch.cos(edges.differences(graph.x)[..., :1]).requires_grad_()
    found = egnn(h, x, v, a, edges, up)
    d = torch.autograd.grad(sum(t.sin().sum() for t in found), [h, x, v, a, *egnn.parameters()])
    return [*found, *d]


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_an_egnn_in_pieces_is_the_egnn(small_pieces, set_threads, lists, up):
    graph = particles(B=3, L=4, N=5, neighbours=random_neighbours(5, 3, 3) if lists else None)
    torch.manual_seed(0)
    egnn = EGNN(1, 1, 16, 2, True, up).to(graph.x)
    u = torch.randn(3, 1, 1, 3).to(graph.x) if up else None
    expected = values_and_gradients(egnn, graph, u)
    set_threads(2)
    assert len(egnn._cuts(graph.x, Neighbourhood.of(graph))) > 1
    found = values_and_gradients(egnn, graph, u)
    for have, want in zip(found, expected, strict=True):
        torch.testing.assert_close(have, want)
    for number in (3, 4, 2):
        set_threads(number)
        for have, want in zip(values_and_gradients(egnn, graph, u), found, strict=True):
            assert torch.equal(have, want)


def test_layers_that_somebody_watches_run_in_the_callers_thread(small_pieces, set_threads):
    set_threads(2)
    graph = particles(B=3, L=4, N=5)
    edges = Neighbourhood.of(graph)
    egnn = EGNN(1, 1, 16, 2, True)
    assert len(egnn._cuts(graph.x, edges)) > 1
    for watched in (egnn.layers[0], egnn.layers[1].phi_e[0], egnn.readout):
        handle = watched.register_forward_hook(lambda *_: None)
        assert len(egnn._cuts(graph.x, edges)) == 1
        handle.remove()
    handle = egnn.embed.weight.register_hook(lambda d: d)
    assert len(egnn._cuts(graph.x, edges)) == 1
    handle.remove()
    with torch.autocast("cpu", torch.bfloat16):
        assert len(egnn._cuts(graph.x, edges)) == 1


# --- a law of force -------------------------------------------------------------------------------


def test_a_force_has_the_same_bits_with_any_number_of_threads(monkeypatch, set_threads):
    monkeypatch.setattr(force, "CHUNK", 8)
    torch.manual_seed(0)
    law = PairForce(2, 16).double()
    nn.init.normal_(law.phi[-1].weight)
    r, s = torch.rand(3, 1, 5, 5, 1).double() + 0.1, torch.randn(3, 1, 5, 5, 2).double()
    r.requires_grad_()
    whole = law.strength(r, s)
    expected = None
    for number in (1, 2, 3):
        set_threads(number)
        found = law._by_chunks(r, s)
        torch.testing.assert_close(found, whole)
        with torch.no_grad():
            assert torch.equal(law._by_chunks(r, s), found)
        have = [found, *torch.autograd.grad(found.sin().sum(), [r, *law.parameters()])]
        expected = expected or have
        assert all(map(torch.equal, have, expected))
