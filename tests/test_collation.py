import pytest
import torch

from spacetime_en import Forecast, InputError, SpacetimeGraph, collate
from tests.helpers import masked, particles, random_neighbours


def test_graphs_of_different_n_and_l_share_a_batch():
    batch = collate([particles(B=1, L=3, N=2), particles(B=2, L=5, N=4)])
    assert batch.x.shape == (3, 5, 4, 3)
    assert batch.observed.sum((1, 2)).tolist() == [6, 20, 20]
    assert batch.observed[0, :3, :2].all()
    assert batch.edge_attr.shape == (3, 1, 4, 4, 1)


def test_equal_graphs_need_no_mask():
    batch = collate([particles(B=1), particles(B=2)])
    assert batch.observed is None


def test_masks_of_the_parts_are_kept():
    graph = masked()
    batch = collate([graph, particles(N=6)])
    assert torch.equal(batch.observed[:3, :, :5], graph.observed)
    assert not batch.observed[:3, :, 5].any()
    assert batch.observed[3:, :3].all()
    assert not batch.observed[3:, 3:].any()


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
        (particles(horizon=[[1.0, 2.0]] * 3), "target times T: 2 and 1"),
        (SpacetimeGraph(particles().x, particles().v), "having edge attributes: False and True"),
    ],
)
def test_graphs_that_do_not_fit_together_are_refused(other, message):
    with pytest.raises(InputError, match=f"graph 1 and graph 0 differ in.*{message}"):
        collate([particles(), other])


def test_pairs_of_graph_and_target_are_padded_together():
    one, two = particles(B=1, N=2), particles(B=2, N=4)
    targets = [Forecast(g.x[:, -1:], g.v[:, -1:]) for g in (one, two)]
    _, target = collate([(one, targets[0]), (two, targets[1])])
    assert target.x.shape == (3, 1, 4, 3)
    torch.testing.assert_close(target.v[0, :, :2], targets[0].v[0])
    assert target.mask[0].tolist() == [[True, True, False, False]]
    assert target.mask[1:].all()
    assert (target.x[~target.mask] == 0).all()
    assert collate([(two, targets[1])])[1].mask is None


def test_targets_keep_their_masks_and_times():
    g = torch.Generator().manual_seed(0)
    pairs = []
    for N in (2, 4):
        graph = particles(B=2, N=N, horizon=[[1.0, 2.0]] * 2)
        x, v = torch.randn(2, 2, 2, N, 3, generator=g, dtype=torch.float64)
        mask = torch.rand(2, 2, N, generator=g) < 0.6
        pairs.append((graph, Forecast(x, v, graph.horizon, mask, mask * 0.5, x[:, None])))
    _, target = collate(pairs)
    assert target.times.tolist() == [[1, 2]] * 4
    assert torch.equal(target.mask[:2, :, :2], pairs[0][1].mask)
    assert torch.equal(target.mask[2:], pairs[1][1].mask)
    assert not target.mask[:2, :, 2:].any()
    assert torch.equal(target.spread, 0.5 * target.mask)
    assert torch.equal(target.samples[:, 0], target.x)


@pytest.mark.parametrize("nodes", [2, 9])
def test_a_target_that_does_not_fit_its_graph_is_refused(nodes):
    graph = particles(B=1)
    wrong = Forecast(*torch.ones(2, 1, 1, nodes, 3))
    with pytest.raises(InputError, match=r"the target of graph 0 .*\(1, 1, 4, 3\)"):
        collate([(graph, wrong)])
    with pytest.raises(InputError, match="the target of graph 0"):
        collate([(graph, graph.x[:, -1:])])
    with pytest.raises(InputError, match="the target of graph 0"):  # no axis of time
        collate([(graph, Forecast(graph.x[:, -1], graph.v[:, -1]))])


def test_an_empty_list_is_refused():
    with pytest.raises(InputError, match="at least one graph"):
        collate([])
