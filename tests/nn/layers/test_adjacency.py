import math

import pytest
import torch

from spacetime_en import SET, InputError
from spacetime_en.nn.layers.adjacency import (
    FlattenedEdgeAttention,
    MatrixEdgeAttention,
    NodeEdgeAttention,
    SharedEdgeAttention,
    edge_attention,
    off_diagonal,
    with_diagonal,
)
from spacetime_en.nn.layers.attention import Window
from tests import reference
from tests.helpers import SMALL, particles, random_neighbours

B, L, N, C = 2, 3, 4, 2
EVERYONE = ~torch.eye(N, dtype=torch.bool).expand(B, 1, N, N)


def attributes():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(B, L, N, N, C, generator=g, dtype=torch.float64)
    return a * (1 - torch.eye(N))[..., None]


def weights(layer):
    attention = layer.attention
    return attention.q.weight, attention.k.weight, attention.v.weight


@pytest.mark.parametrize("causal", [True, False])
def test_flattened_form_attends_over_vectors_of_all_edges(causal):
    torch.manual_seed(0)
    layer = FlattenedEdgeAttention(N, C, scaled=True).double()
    assert layer.attention.q.weight.shape == (2 * N * (N - 1),) * 2
    a = attributes()
    found, _ = layer(a, Window.of(a, None, causal), EVERYONE, False)
    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    for b in range(B):
        tokens = torch.stack([torch.cat([a[b, t, i, j] for i, j in pairs]) for t in range(L)])
        expected = reference.qkv_attention(*weights(layer), tokens, causal=causal)
        for e, (i, j) in enumerate(pairs):
            torch.testing.assert_close(found[b, :, i, j], expected[:, C * e : C * e + C])


def test_nodes_form_is_appendix_c():
    """pi = softmax((A Q)(A K)^T / sqrt(N)) over the last axis, A <- pi (A V), frame by frame."""
    torch.manual_seed(0)
    layer = NodeEdgeAttention(N, scaled=True).double()
    a = attributes()
    found, pi = layer(a, Window(), EVERYONE, True)
    q, k, v = (w.T for w in weights(layer))
    for b in range(B):
        for t in range(L):
            for c in range(C):
                A = a[b, t, :, :, c]
                expected = torch.softmax((A @ q) @ (A @ k).T / math.sqrt(N), dim=-1)
                torch.testing.assert_close(pi[b, t, c], expected)
                torch.testing.assert_close(found[b, t, :, :, c], expected @ (A @ v))


@pytest.mark.parametrize("causal", [True, False])
def test_shared_form_attends_along_each_edge(causal):
    torch.manual_seed(0)
    layer = SharedEdgeAttention(C, scaled=True).double()
    a = attributes()
    found, _ = layer(a, Window.of(a, None, causal), EVERYONE, False)
    for b in range(B):
        for i in range(N):
            for j in range(N):
                expected = reference.qkv_attention(*weights(layer), a[b, :, i, j], causal=causal)
                torch.testing.assert_close(found[b, :, i, j], expected)


@pytest.mark.parametrize("causal", [True, False])
def test_an_edge_attends_over_the_frames_in_which_both_of_its_nodes_were(causal):
    """As if its series had never held the others: those frames cut out by hand."""
    torch.manual_seed(0)
    layer = SharedEdgeAttention(C, scaled=True).double()
    a = attributes()
    observed = torch.rand(B, L, N, generator=torch.Generator().manual_seed(1)) < 0.7
    there = observed[..., None] & observed[..., None, :]  # (B, L, N, N)
    found, _ = layer(a, Window.of(a, observed, causal), there & EVERYONE, False)
    for b in range(B):
        for i in range(N):
            for j in range(N):
                seen = there[b, :, i, j]
                if i != j and seen.any():
                    alone = a[b, seen, i, j]
                    expected = reference.qkv_attention(*weights(layer), alone, causal=causal)
                    torch.testing.assert_close(found[b, seen, i, j], expected)
    assert found.isfinite().all()


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_matrices_form_is_equations_11_and_12(causal, scaled):
    torch.manual_seed(0)
    layer = MatrixEdgeAttention(N, scaled).double()
    a = attributes()
    found, pi = layer(a, Window.of(a, None, causal), EVERYONE, True)
    Q, K, V = reference.matrices(layer)
    scale = 1 / math.sqrt(N) if scaled else 1.0
    for b in range(B):
        for c in range(C):
            A = a[b, :, :, :, c]
            for t in range(L):
                frames = range(t + 1) if causal else range(L)
                terms = {s: (scale * (Q @ A[t]).T @ (K @ A[s])).exp() for s in frames}
                total = sum(terms.values())
                for s in range(L):
                    expected = terms[s] / total if s in frames else torch.zeros_like(total)
                    assert_equal_to_rounding(pi[b, c, :, :, t, s], expected)
            expected = reference.matrix_attention(Q, K, V, A, scaled, causal)
            assert_equal_to_rounding(found[b, :, :, :, c], expected)


def assert_equal_to_rounding(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("causal", [True, False])
def test_matrices_form_attends_over_the_frames_that_were_observed(causal):
    """As if the window had never held the others: those frames cut out by hand."""
    torch.manual_seed(0)
    layer = MatrixEdgeAttention(N, scaled=True).double()
    a = attributes()
    seen = torch.tensor([[True, False, True], [False, False, False]])
    found, _ = layer(a, Window.of(a, seen[..., None].expand(B, L, N), causal), EVERYONE, False)
    alone = a[:1, seen[0]]
    expected, _ = layer(alone, Window.of(alone, None, causal), EVERYONE, False)
    torch.testing.assert_close(found[:1, seen[0]], expected)
    assert found.isfinite().all()


def test_matrices_form_forgets_the_rows_of_what_does_not_change():
    """All pi(t, s) are 1/L then, in every entry: sums over all rows of V A, whatever the row."""
    torch.manual_seed(0)
    layer = MatrixEdgeAttention(N, scaled=True).double()
    a = attributes()[:, :1].expand(B, L, N, N, C)
    found, _ = layer(a, Window(), EVERYONE, False)
    expected = torch.einsum("ik,btkjc->btjc", layer.v.weight, a)
    torch.testing.assert_close(found, expected[:, :, None].expand_as(found))


@pytest.mark.parametrize(
    ("form", "count"),
    [("flattened", 3 * 40**2), ("nodes", 3 * 5**2), ("edges", 3 * 2**2), ("matrices", 3 * 5**2)],
)
def test_parameters_of_the_forms(form, count):
    """Of a block, at the paper's N = 5 and two channels."""
    layer = edge_attention(form, nodes=5, channels=2, scaled=True)
    assert sum(p.numel() for p in layer.parameters()) == count


def test_off_diagonal_keeps_the_order_and_can_be_undone():
    a = attributes()
    entries = off_diagonal(a)
    torch.testing.assert_close(entries[0, 0, 0], a[0, 0, 0, 1])
    torch.testing.assert_close(entries[0, 0, -1], a[0, 0, N - 1, N - 2])
    torch.testing.assert_close(with_diagonal(entries, N), a)


@pytest.mark.parametrize("form", ["flattened", "nodes", "matrices"])
def test_forms_tied_to_n_say_so(form):
    with pytest.raises(InputError, match=r"nodes: adjacency=.* is tied to the number of nodes"):
        SET(adjacency=form)
    model = SET(adjacency=form, nodes=4, **SMALL).double()
    with pytest.raises(InputError, match="tied to N = 4 nodes, the graph has 5"):
        model(particles(N=5))
    with pytest.raises(InputError, match="needs a complete graph"):
        model(particles(neighbours=random_neighbours(4, 2)))
    mask = torch.ones(3, 3, 4, dtype=torch.bool)
    mask[1, :, 3] = False
    with pytest.raises(InputError, match="a graph of the batch has 3 of 4"):
        model(particles(observed=mask))
    mask[1, 0, 3] = True
    with pytest.raises(InputError, match=r"observed: adjacency=.* a node is missing in a frame"):
        model(particles(observed=mask))


def test_shared_form_needs_edges_that_last():
    model = SET(adjacency="edges", **SMALL).double()
    model(particles(neighbours=random_neighbours(4, 2)))
    with pytest.raises(InputError, match="needs one list for all frames"):
        model(particles(neighbours=random_neighbours(4, 2, 3, 3)))


def test_an_unknown_form_is_refused():
    expected = "'flattened' or 'nodes' or 'edges' or 'matrices' or None, found 'dense'"
    with pytest.raises(InputError, match=f"adjacency: expected {expected}"):
        SET(adjacency="dense")
