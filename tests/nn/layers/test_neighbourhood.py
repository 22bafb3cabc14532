"""Complete graphs and neighbour lists are one kind of edges."""

import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from tests.helpers import particles


def everybody(N):
    """For every node, the other nodes in order, (N, N - 1)."""
    return torch.tensor([[j for j in range(N) if j != i] for i in range(N)])


def test_a_list_of_all_others_has_the_edges_of_the_complete_graph():
    graph = particles(N=4)
    complete = Neighbourhood.of(graph)
    listed = Neighbourhood.of(graph.replace(neighbours=everybody(4), edge_attr=None))
    assert complete.complete
    assert not listed.complete
    assert torch.equal(complete.normaliser, listed.normaliser)
    others = complete.differences(graph.x)[complete.mask.expand(3, 3, 4, 4)]
    assert torch.equal(others.view(3, 3, 4, 3, 3), listed.differences(graph.x))


def test_unused_places_and_the_node_itself_are_no_edges():
    neighbours = torch.tensor([[1, -1], [0, 2], [1, -1]])
    graph = particles(N=3, neighbours=neighbours, edge_attr=None)
    edges = Neighbourhood.of(graph)
    assert edges.mask[0, 0].tolist() == [[True, False], [True, True], [True, False]]
    assert edges.normaliser.flatten()[:3].tolist() == [1.0, 0.5, 1.0]
    assert not Neighbourhood.of(particles(N=3)).mask[0, 0].diagonal().any()


def test_in_a_box_differences_are_minimum_images():
    graph = particles(box=torch.full((3,), 0.5))
    edges = Neighbourhood.of(graph, graph.box)
    assert edges.differences(graph.x).abs().max() <= 0.25 + 1e-12


def test_what_leaves_a_node_is_summed_there():
    graph = particles(N=3, L=1, neighbours=torch.tensor([[1, 2], [0, 2], [1, 1]]), edge_attr=None)
    edges = Neighbourhood.of(graph)
    m = torch.arange(6.0).view(1, 1, 3, 2, 1).expand(3, 1, 3, 2, 1)
    assert edges.sum_at_senders(m)[2, 0, :, 0].tolist() == [2.0, 0 + 4 + 5, 1 + 3]
    complete = Neighbourhood.of(particles(N=3, L=1))
    m = torch.arange(9.0).view(1, 1, 3, 3, 1).expand(3, 1, 3, 3, 1)
    assert complete.sum_at_senders(m)[0, 0, :, 0].tolist() == [9.0, 12.0, 15.0]
