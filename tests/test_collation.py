import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, collate
from spacetime_en.testing import assert_padding_invariant
from tests.helpers import SMALL, liven, masked, particles, random_neighbours


def test_graphs_of_different_n_and_l_share_a_batch():
    batch = collate([particles(B=1, L=3, N=2), particles(B=2, L=5, N=4)])
    assert batch.x.shape == (3, 5, 4, 3)
    assert batch.node_mask.sum(1).tolist() == [2, 4, 4]
    assert batch.frame_mask.sum(1).tolist() == [3, 5, 5]
    assert batch.edge_attr.shape == (3, 1, 4, 4, 1)


def test_equal_graphs_need_no_mask():
    batch = collate([particles(B=1), particles(B=2)])
    assert batch.node_mask is None
    assert batch.frame_mask is None


def test_masks_of_the_parts_are_kept():
    batch = collate([masked(), particles(N=6)])
    assert batch.node_mask.sum(1).tolist() == [5, 4, 3, 6, 6, 6]
    assert batch.frame_mask[1].tolist() == [False, True, False, True, True]


def test_neighbour_lists_are_padded_with_unused_places():
    one = particles(B=1, N=3, neighbours=random_neighbours(3, 1))
    two = particles(B=1, L=5, N=4, neighbours=random_neighbours(4, 2, 1, 5))
    batch = collate([one, two])
    assert batch.neighbours.shape == (2, 5, 4, 2)
    assert (batch.neighbours[0, :, 3] == -1).all()
    assert (batch.neighbours[0, :, :, 1] == -1).all()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (particles(n=2), "space dimensions n: 2 and 3"),
        (particles(dtype=torch.float32), "dtype"),
        (particles(neighbours=random_neighbours(4, 2)), "neighbour lists: True and False"),
        (particles(box=[9.0, 9.0, 9.0]), "periodic box"),
        (particles(features=torch.ones(3, 4, 2)), "features of their own"),
        (SpacetimeGraph(particles().x, particles().v), "having edge attributes: False and True"),
    ],
)
def test_graphs_that_do_not_fit_together_are_refused(other, message):
    with pytest.raises(InputError, match=f"graph 1 and graph 0 differ in.*{message}"):
        collate([particles(), other])


def test_pairs_of_graph_and_target_are_padded_together():
    one, two = particles(B=1, N=2), particles(B=2, N=4)
    targets = [Forecast(g.x[:, -1], g.v[:, -1]) for g in (one, two)]
    batch, target = collate([(one, targets[0]), (two, targets[1])])
    assert target.x.shape == (3, 4, 3)
    torch.testing.assert_close(target.v[0, :2], targets[0].v[0])
    assert (target.x[~batch.node_mask] == 0).all()


@pytest.mark.parametrize("nodes", [2, 9])
def test_a_target_that_does_not_fit_its_graph_is_refused(nodes):
    graph = particles(B=1)
    wrong = Forecast(torch.ones(1, nodes, 3), torch.ones(1, nodes, 3))
    with pytest.raises(InputError, match=r"the target of graph 0 .*\(1, 4, 3\)"):
        collate([(graph, wrong)])
    with pytest.raises(InputError, match="the target of graph 0"):
        collate([(graph, graph.x[:, -1])])


def test_an_empty_list_is_refused():
    with pytest.raises(InputError, match="at least one graph"):
        collate([])


GRAPHS = {
    "complete": particles(),
    "masked": masked(),
    "neighbours": particles(neighbours=random_neighbours(4, 2)),
    "neighbours per frame": particles(neighbours=random_neighbours(4, 2, 3, 3)),
    "box": particles(box=[4.0, 5.0, 6.0]),
    "features": particles(features=torch.rand(3, 4, 2)),
}
MODELS = {
    "set": ("set", {}),
    "set causal": ("set", {"causal": True}),
    "set encoded": ("set", {"encodings": "WXY"}),
    "set edges": ("set", {"adjacency": "edges"}),
    "set nonequivariant": ("set-nonequivariant", {}),
    "egnn": ("egnn", {}),
    "mlp": ("mlp", {}),
    "linear": ("linear", {}),
    "last-frame": ("last-frame", {}),
    "straight-line": ("straight-line", {}),
    "least-squares-line": ("least-squares-line", {}),
    "parabola": ("parabola", {}),
}


def build(model, graph):
    preset, settings = MODELS[model]
    small = SMALL if preset.startswith("set") else {}
    return liven(build_model(preset, like=graph, **small, **settings)).double().eval()


PAIRS = [(g, m) for g in GRAPHS for m in MODELS]
PAIRS.remove(("neighbours per frame", "set edges"))  # edge attention refuses lists per frame


@pytest.mark.parametrize(("graph", "model"), PAIRS)
def test_padding_changes_no_forecast(graph, model):
    assert_padding_invariant(build(model, GRAPHS[graph]), GRAPHS[graph])


@pytest.mark.parametrize("model", ["set", "set causal", "egnn"])
@pytest.mark.parametrize("graph", ["complete", "masked", "neighbours"])
def test_padding_changes_no_gradient_and_graphs_do_not_see_each_other(graph, model):
    alone = GRAPHS[graph]
    net = build(model, alone)
    N = alone.x.shape[2]
    larger = particles(B=2, L=7, N=6, seed=5)
    if alone.neighbours is not None:
        larger = particles(B=2, L=7, N=6, seed=5, neighbours=random_neighbours(6, 3))

    def gradients(batch: SpacetimeGraph) -> tuple[list[torch.Tensor | None], torch.Tensor]:
        x = batch.x.clone().requires_grad_()
        out = net(batch._replace(x=x))
        loss = (out.x[: len(alone), :N] * 3 + out.v[: len(alone), :N].square()).sum()
        parameters = torch.autograd.grad(loss, [x, *net.parameters()], allow_unused=True)
        return list(parameters[1:]), parameters[0]

    own, own_x = gradients(alone)
    padded, padded_x = gradients(collate([alone, larger]))
    for a, b in zip(own, padded, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11 * max(1.0, a.abs().max()))
    assert (padded_x[len(alone) :] == 0).all()
    L = alone.x.shape[1]
    torch.testing.assert_close(padded_x[: len(alone), :L, :N], own_x, rtol=1e-9, atol=1e-11)
    assert (padded_x[: len(alone), L:] == 0).all()
