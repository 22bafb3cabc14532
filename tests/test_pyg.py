import sys

import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph, build_model, collate
from spacetime_en.pyg import neighbours_from_edge_index
from tests.helpers import masked, particles, random_neighbours

pyg = pytest.importorskip("torch_geometric.data")


def test_a_data_object_becomes_a_graph():
    data = pyg.Data(
        pos=torch.randn(4, 6, 3),
        vel=torch.randn(4, 6, 3),
        x=torch.rand(4, 2),
        edge_index=torch.tensor([[0, 2, 3], [1, 1, 0]]),
        edge_attr=torch.tensor([[10.0], [20.0], [30.0]]),
        time=torch.arange(6.0) / 2,
        horizon=torch.tensor([3.0]),
    )
    graph = SpacetimeGraph.from_pyg(data)
    assert graph.x.shape == (1, 6, 4, 3)
    torch.testing.assert_close(graph.x[0, 2, 3], data.pos[3, 2])
    torch.testing.assert_close(graph.features[0, 5, 1], data.x[1])
    assert graph.neighbours[0, 0].tolist() == [[3, -1], [0, 2], [-1, -1], [-1, -1]]
    assert graph.edge_attr[0, 0, 1, :, 0].tolist() == [10, 20]
    assert graph.horizon.tolist() == [[3]]


def test_messages_flow_from_source_to_target():
    """Only node 1 has an incoming edge, so only its forecast depends on the other."""
    x = torch.randn(1, 2, 2, 3)
    edges = torch.tensor([[0], [1]])
    data = pyg.Data(pos=x[0].transpose(0, 1), vel=torch.ones(2, 2, 3), edge_index=edges)
    graph = SpacetimeGraph.from_pyg(data)
    model = build_model("egnn", like=graph)
    moved = graph._replace(x=graph.x + torch.tensor([[1.0], [0.0]]))  # node 0 moves
    assert not torch.equal(model(moved).v[0, 0, 1], model(graph).v[0, 0, 1])
    moved = graph._replace(x=graph.x + torch.tensor([[0.0], [1.0]]))  # node 1 moves
    assert torch.equal(model(moved).v[0, 0, 0], model(graph).v[0, 0, 0])


def test_positions_alone_make_a_complete_graph_with_velocities_by_differences():
    data = pyg.Data(pos=torch.arange(8.0).view(2, 4, 1) ** 2)
    graph = SpacetimeGraph.from_pyg(data)
    assert graph.neighbours is None
    assert graph.v[0, :, 0, 0].tolist() == [1, 1, 3, 5]


def test_a_batch_and_a_list_are_padded_together():
    items = [pyg.Data(pos=torch.randn(n, 3, 2), vel=torch.randn(n, 3, 2)) for n in (2, 4)]
    for data in (items, pyg.Batch.from_data_list(items)):
        graph = SpacetimeGraph.from_pyg(data)
        assert graph.x.shape == (2, 3, 4, 2)
        assert graph.present.sum(1).tolist() == [2, 4]


GRAPHS = {
    "complete": particles(),
    "neighbours": particles(neighbours=random_neighbours(4, 2)),
    "features": particles(features=torch.rand(3, 4, 2)),
    "box": particles(box=[4.0, 5.0, 6.0]),
    "up": particles(up=[0.0, 3.0, 4.0]),
    "masked": masked(),
    "paths": particles(horizon=[[1.0, 2.0]] * 3),
    "masked with lists": masked(neighbours=random_neighbours(5, 2)),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_there_and_back_gives_the_same_forecast(graph):
    items = graph.to_pyg()
    assert [len(data.pos) for data in items] == ([4] * 3 if graph.observed is None else [5, 4, 3])
    back = SpacetimeGraph.from_pyg(items)
    for preset in ("set", "straight-line"):
        torch.manual_seed(0)
        model = build_model(preset, like=graph, **{"hidden": 8} if preset == "set" else {}).double()
        forecast, again = model.eval()(graph), model.eval()(back)
        torch.testing.assert_close(again.x, forecast.x)
        torch.testing.assert_close(again.v, forecast.v)


def test_gaps_go_there_and_back():
    graph = masked()
    items = graph.to_pyg()
    back = SpacetimeGraph.from_pyg(items)
    for b, data in enumerate(items):
        seen = graph.observed[b][graph.observed[b].any(1)][:, graph.present[b]]  # (L, N)
        assert torch.equal(data.observed, seen.T)
        assert data.time.tolist() == graph.times[b, graph.observed[b].any(1)].tolist()
        L, N = seen.shape
        assert torch.equal(back.observed[b, :L, :N], seen)
        assert back.observed[b].sum() == seen.sum()
    assert torch.equal(back.x[back.observed], graph.x[graph.observed])
    assert back.neighbours is None  # also between nodes that were never there together


def test_a_complete_graph_stays_complete():
    for graph in (particles(), particles(features=torch.rand(3, 4, 2)).replace(edge_attr=None)):
        back = SpacetimeGraph.from_pyg(graph.to_pyg())
        assert back.neighbours is None
        assert len(collate([graph, back])) == 6


def test_a_batch_may_hold_complete_and_sparse_graphs():
    sparse = torch.tensor([[0, 1, 2], [1, 0, 3]])
    items = [
        pyg.Data(pos=torch.randn(4, 3, 2), vel=torch.randn(4, 3, 2), edge_index=sparse),
        pyg.Data(pos=torch.randn(2, 3, 2), vel=torch.randn(2, 3, 2), edge_index=sparse[:, :2]),
        pyg.Data(pos=torch.randn(3, 3, 2), vel=torch.randn(3, 3, 2)),
    ]
    graph = SpacetimeGraph.from_pyg(items)
    assert graph.edge_mask[:, 0].sum((1, 2)).tolist() == [3, 2, 6]
    for k, item in enumerate(items):
        alone = SpacetimeGraph.from_pyg(item)
        model = build_model("egnn", like=graph)
        n = len(item.pos)
        torch.testing.assert_close(model(alone).x[0], model(graph).x[k, :, :n])


def test_edges_that_make_no_sense_are_refused():
    pos = torch.ones(3, 2, 2)
    with pytest.raises(InputError, match="edge_attr: needs edge_index"):
        SpacetimeGraph.from_pyg(pyg.Data(pos=pos, edge_attr=torch.ones(1, 1)))
    with pytest.raises(InputError, match=r"edge_index: expected shape \(2, E\), found \(3, 2\)"):
        SpacetimeGraph.from_pyg(pyg.Data(pos=pos, edge_index=torch.ones(3, 2).long()))
    with pytest.raises(InputError, match="edge_index: expected whole numbers"):
        SpacetimeGraph.from_pyg(pyg.Data(pos=pos, edge_index=torch.ones(2, 1)))


def test_what_changes_over_time_cannot_become_data():
    with pytest.raises(InputError, match="neighbours: changes from frame to frame"):
        particles(neighbours=random_neighbours(4, 2, 3, 3)).to_pyg()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pyg.Data(x=torch.ones(3, 1)), r"pos: expected shape \(N, L, n\) or \(N, n\), found None"),
        (
            pyg.Data(
                pos=torch.ones(3, 2), vel=torch.ones(3, 2), edge_index=torch.tensor([[0], [3]])
            ),
            r"edge_index: found node 3, expected 0 to 2",
        ),
        (pyg.Data(pos=torch.ones(3, 2)), "vel: one frame has no differences"),
    ],
)
def test_bad_data_is_told_in_one_sentence(data, message):
    with pytest.raises(InputError, match=message):
        SpacetimeGraph.from_pyg(data)


def test_edge_lists_of_a_wrong_shape_are_refused():
    with pytest.raises(InputError, match=r"edge_index: expected shape \(2, E\)"):
        neighbours_from_edge_index(torch.ones(3, 2).long(), 4)
    with pytest.raises(InputError, match=r"edge_attr: expected shape \(E, e\) with E=1"):
        neighbours_from_edge_index(torch.tensor([[0], [1]]), 2, torch.ones(2, 1))


def test_a_graph_without_edges_sends_no_messages():
    neighbours, _ = neighbours_from_edge_index(torch.zeros(2, 0).long(), 3)
    assert neighbours.shape == (3, 0)
    graph = particles(N=3, neighbours=neighbours)
    assert build_model("egnn").double()(graph).x.isfinite().all()
    assert len(collate([graph, graph])) == 6


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(ImportError, match=r"pip install 'spacetime-en\[pyg\]'"):
        particles().to_pyg()
