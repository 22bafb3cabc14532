import pytest
import torch
import torch.nn.utils.prune

from spacetime_en.nn.layers.egcl import EGCL, EGNN
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from tests import reference
from tests.helpers import masked, particles, random_neighbours


def inputs(graph, width, channels, seed=0):
    g = torch.Generator().manual_seed(seed)
    B, L, N, _ = graph.x.shape
    K = graph.edge_mask.shape[-1]
    h = torch.randn(B, L, N, width, generator=g, dtype=torch.float64)
    a = torch.randn(B, L, N, K, channels, generator=g, dtype=torch.float64)
    return h, graph.x, graph.v, a


def layer(width=8, channels=2, residual=True, seed=0):
    torch.manual_seed(seed)
    egcl = EGCL(width, channels, residual).double()
    torch.nn.init.normal_(egcl.phi_x[-1].weight)
    return egcl


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("N", [1, 2, 5])
def test_egcl_is_equation_2(n, N, residual):
    graph = particles(B=2, L=3, N=N, n=n)
    egcl = layer(residual=residual)
    h, x, v, a = inputs(graph, 8, 2)
    found = egcl(h, x, v, a, Neighbourhood.of(graph))
    for b in range(2):
        for t in range(3):
            expected = reference.egcl(egcl, h[b, t], x[b, t], v[b, t], a[b, t])
            for have, want in zip(found, expected, strict=True):
                torch.testing.assert_close(have[b, t], want)


def test_egnn_is_equation_4():
    torch.manual_seed(0)
    graph = particles(B=1, L=2)
    net = EGNN(features=3, edge_channels=2, hidden=8, layers=3, residual=True).double()
    h, x, v, a = inputs(graph, 3, 2)
    found = net(h, x, v, a, Neighbourhood.of(graph))
    for t in range(2):
        expected = reference.egnn(net, h[0, t], x[0, t], v[0, t], a[0, t])
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have[0, t], want)


def test_a_list_of_all_neighbours_is_the_complete_graph():
    N = 5
    everyone = torch.tensor([[j for j in range(N) if j != i] for i in range(N)])
    dense = particles(N=N)
    listed = particles(N=N, neighbours=everyone)
    egcl = layer()
    h, x, v, a = inputs(dense, 8, 2)
    a_listed = a.gather(3, everyone[..., None].expand(*a.shape[:2], N, N - 1, 2))
    found = egcl(h, x, v, a_listed, Neighbourhood.of(listed))
    expected = egcl(h, x, v, a, Neighbourhood.of(dense))
    for have, want in zip(found, expected, strict=True):
        torch.testing.assert_close(have, want)


def test_neighbours_per_frame_are_used_frame_by_frame():
    lists = random_neighbours(5, 2, 2, 4)  # (B, L, N, K)
    whole = particles(B=2, L=4, N=5, neighbours=lists)
    egcl = layer()
    h, x, v, a = inputs(whole, 8, 2)
    found = egcl(h, x, v, a, Neighbourhood.of(whole))
    for t in range(4):
        frame = particles(B=2, L=4, N=5, neighbours=lists[:, t])
        expected = egcl(h, x, v, a, Neighbourhood.of(frame))
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have[:, t], want[:, t])


def test_there_are_no_messages_from_or_to_what_is_not_there():
    """In every frame the equation holds on the graph of the nodes that were observed in it."""
    graph = masked()
    egcl = layer()
    h, _, _, a = inputs(graph, 8, 2)
    x, v = (t.nan_to_num() for t in (graph.x, graph.v))
    found = egcl(h, x, v, a, Neighbourhood.of(graph))
    for b in range(3):
        for t in range(5):
            i = graph.observed[b, t].nonzero()[:, 0]
            if len(i):
                expected = reference.egcl(
                    egcl, h[b, t, i], x[b, t, i], v[b, t, i], a[b, t, i][:, i]
                )
                for have, want in zip(found, expected, strict=True):
                    torch.testing.assert_close(have[b, t, i], want)


def test_in_a_box_only_the_nearest_image_counts():
    """Moving one node by whole cell vectors moves its output along and changes nothing else."""
    graph = particles(B=1, box=[3.0, 4.0, 5.0])
    egcl = layer()
    h, x, v, a = inputs(graph, 8, 2)
    shift = torch.zeros_like(x)
    shift[:, :, 1] = torch.tensor([3.0, -8.0, 5.0])
    neighbourhood = Neighbourhood.of(graph, graph.box)
    h0, x0, v0 = egcl(h, x, v, a, neighbourhood)
    h1, x1, v1 = egcl(h, x + shift, v, a, neighbourhood)
    torch.testing.assert_close(h1, h0)
    torch.testing.assert_close(x1, x0 + shift)
    torch.testing.assert_close(v1, v0)
    assert (egcl(h, x, v, a, Neighbourhood.of(graph))[2] - v0).abs().max() > 1e-3


def test_the_last_linear_of_phi_x_has_no_bias_and_starts_small():
    egcl = EGCL(128, 2)
    assert egcl.phi_x[-1].bias is None
    assert egcl.phi_x[-1].weight.abs().max() < 0.001


def outputs_and_gradients(egcl, graph):
    h, x, v, a = inputs(graph, 8, 2)
    out = egcl(h, x, v, a, Neighbourhood.of(graph))
    egcl.zero_grad()
    sum(t.square().sum() for t in out).backward()
    return [*out, *(p.grad for p in egcl.parameters())]


@pytest.mark.parametrize("lists", [False, True])
def test_from_the_weights_is_as_written(lists):
    graph = particles(neighbours=random_neighbours(4, 2)) if lists else particles()
    egcl = layer()
    quick = outputs_and_gradients(egcl, graph)
    egcl.phi_e[2].register_forward_hook(lambda *_: None)
    for have, want in zip(quick, outputs_and_gradients(egcl, graph), strict=True):
        torch.testing.assert_close(have, want)


def test_hooks_on_inner_linears_fire():
    egcl, seen = layer(), []
    for name, module in egcl.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda *_, name=name: seen.append(name))
    outputs_and_gradients(egcl, particles())
    assert sorted(seen) == sorted(f"phi_{p}.{k}" for p in "evxh" for k in (0, 2))


class Adapter(torch.nn.Linear):
    """A Linear and something learned besides, as fine-tuning libraries put in its place."""

    def forward(self, t):
        return super().forward(t) + 1.0


def test_an_adapter_in_place_of_a_linear_is_not_passed_over():
    egcl, graph = layer(), particles()
    before = outputs_and_gradients(egcl, graph)
    adapter = Adapter(8, 8).double()
    adapter.load_state_dict(egcl.phi_e[2].state_dict())
    egcl.phi_e[2] = adapter
    assert (outputs_and_gradients(egcl, graph)[0] - before[0]).abs().max() > 1e-2


def test_an_adapter_in_place_of_the_embedding_is_not_passed_over():
    """What the first layer makes of the features is what it makes of them as written."""
    torch.manual_seed(0)
    graph = particles()
    net = EGNN(features=1, edge_channels=1, hidden=8, layers=2, residual=True).double()
    net.embed = Adapter(1, 8).double()
    h, x, v, a = inputs(graph, 1, 1)
    found = net(h, x, v, a, Neighbourhood.of(graph))
    for layer in net.layers:
        layer.phi_e[0].register_forward_hook(lambda *_: None)
    for have, want in zip(found, net(h, x, v, a, Neighbourhood.of(graph)), strict=True):
        torch.testing.assert_close(have, want)


def test_backward_hooks_on_inner_linears_fire():
    egcl, seen = layer(), []
    egcl.phi_x[0].register_full_backward_hook(lambda *_: seen.append("phi_x.0"))
    outputs_and_gradients(egcl, particles())
    assert seen == ["phi_x.0"]


def test_pruned_weights_train():
    egcl, graph = layer(), particles()
    torch.nn.utils.prune.l1_unstructured(egcl.phi_e[2], "weight", 0.5)
    for _ in range(2):
        outputs_and_gradients(egcl, graph)
