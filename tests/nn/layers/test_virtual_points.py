"""The layer of SET-2 in space, against a plain loop over edges."""

import pytest
import torch
from torch.nn import functional as F

from spacetime_en.nn.layers import virtual_points
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.layers.virtual_points import (
    CLOSE,
    HEADS,
    TOUCHING,
    VirtualPointAttention,
)
from tests.helpers import padded, particles, random_neighbours

HIDDEN, CHANNELS, POINTS = 8, 3, 4


def plain_loop(layer, h, vectors, x_ij, a_ij, edges):
    """The equations of the module's docstring, edge by edge."""
    B, N, K, n = x_ij.shape
    new_h, new_vectors = h.clone(), vectors.clone()
    senders = edges.senders.view(B, -1, N, K)[:, -1] % N
    g = layer.norm(h)
    for b in range(B):
        for i in range(N):
            messages, logits, differences = [], [], []
            for k in range(K):
                if not edges.mask[b, 0, i, k]:
                    continue
                j = senders[b, i, k]
                d = x_ij[b, i, k][:, None] + (vectors[b, i] - vectors[b, j]) @ layer.offsets
                logs = 0.5 * torch.log(d.square().sum(0) + CLOSE**2)  # d: (n, R)
                z = layer.receiver(g[b, i]) + layer.sender(g[b, j])
                z = z + layer.edge(torch.cat([logs, a_ij[b, i, k]]))
                m = F.silu(layer.message(F.silu(z)))
                messages.append(m)
                logits.append(layer.logits(m))
                differences.append(d)
            total, pull = torch.zeros_like(h[b, i]), torch.zeros(n, POINTS, dtype=h.dtype)
            if messages:
                alpha = torch.stack(logits).softmax(0)  # (edges, heads)
                for m, a, d in zip(messages, alpha, differences, strict=True):
                    total = total + m * a.repeat_interleave(HIDDEN // HEADS)
                    length = (d.square().sum(0) + TOUCHING**2).sqrt()
                    weight = layer.pull(m) * a.repeat_interleave(POINTS // HEADS) / length
                    pull = pull + weight * d
            v = vectors[b, i] + pull @ layer.gather
            one, other = v @ layer.invariants.one, v @ layer.invariants.other
            invariants = torch.cat([(one * other).sum(0), one.square().sum(0)]).asinh()
            update = layer.node(torch.cat([g[b, i], total, invariants]))
            new_h[b, i] = h[b, i] + update[:HIDDEN]
            new_vectors[b, i] = v + update[HIDDEN:] * other
    return new_h, new_vectors


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return VirtualPointAttention(HIDDEN, CHANNELS, POINTS, edge_scalars=1).double()


def inputs(graph):
    """Of the layer."""
    edges = Neighbourhood.of(graph, graph.box)
    B, _, N, n = graph.x.shape
    x_ij = edges.differences(graph.x.nan_to_num(0.0))[:, 0]
    h, vectors = torch.randn(B, N, HIDDEN).double(), torch.randn(B, N, n, CHANNELS).double()
    return h, vectors, x_ij, torch.randn(*x_ij.shape[:3], 1).double(), edges


def in_pieces_of(edges, monkeypatch):
    monkeypatch.setattr(virtual_points, "LARGE", 0)
    monkeypatch.setattr(virtual_points, "PIECE", edges)


@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    "graph",
    [
        particles(L=1),
        padded(L=3).latest(),
        particles(L=1, N=5, neighbours=random_neighbours(5, 2)),
        particles(L=1, box=[2.0, 3.0, 4.0]),
        particles(L=1, N=1),
    ],
    ids=["complete", "padded", "neighbours", "box", "alone"],
)
def test_the_layer_is_its_equations(graph, pieces, layer, monkeypatch):
    if pieces:
        in_pieces_of(4, monkeypatch)
    h, vectors, x_ij, a_ij, edges = inputs(graph)
    with torch.no_grad():
        found = layer(h, vectors, x_ij, a_ij, edges)
        expected = plain_loop(layer, h, vectors, x_ij, a_ij, edges)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_pieces_have_the_same_gradients(order, layer, monkeypatch):
    """Those of forces that are gradients, too, whose training needs second derivatives."""
    graph = particles(L=1, N=6, neighbours=random_neighbours(6, 3))
    *tensors, edges = inputs(graph)
    tensors = [t.requires_grad_() for t in tensors]

    def gradients():
        out = sum(t.square().sum() for t in layer(*tensors, edges))
        grads = torch.autograd.grad(out, tensors, create_graph=order == 2, retain_graph=True)
        if order == 2:
            out = sum(g.square().sum() for g in grads)
        return [*grads, *torch.autograd.grad(out, (*tensors, *layer.parameters()))]

    at_once = gradients()
    in_pieces_of(5, monkeypatch)
    for one, other in zip(gradients(), at_once, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_far_more_neighbours_do_not_change_the_size_of_what_a_node_hears(layer):
    """Attention is a mean: a model of five nodes can be used on fifty."""
    heard = []
    for N in (5, 50):
        graph = particles(B=1, L=1, N=N)
        edges = Neighbourhood.of(graph)
        x_ij = edges.differences(graph.x)[:, 0]
        h, vectors = torch.randn(1, N, HIDDEN).double(), torch.randn(1, N, 3, CHANNELS).double()
        with torch.no_grad():
            out, _ = layer(h, vectors, x_ij, torch.zeros(1, N, N, 1).double(), edges)
        heard.append((out - h).square().mean().sqrt())
    assert 0.3 < heard[0] / heard[1] < 3
