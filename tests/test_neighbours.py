import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en import InputError, SpacetimeGraph, build_model, geometry
from spacetime_en.neighbours import connect, nearest_neighbours, radius_neighbours
from spacetime_en.testing import assert_equivariant
from tests.helpers import masked, particles

SKEWED = torch.tensor([[4.0, 0.0, 0.0], [1.0, 5.0, 0.0], [-0.7, 0.9, 6.0]], dtype=torch.float64)


def cloud(N, n=3, size=6.0, seed=0, clouds=2):
    g = torch.Generator().manual_seed(seed)
    return size * torch.rand(clouds, N, n, generator=g, dtype=torch.float64)


def distances(x, cell=None):
    """All of them, (F, N, N); infinite to itself."""
    cell = None if cell is None else cell.expand(len(x), *cell.shape[-2:])
    d = geometry.minimum_image(x[:, :, None] - x[:, None], cell).norm(dim=-1)
    return d + torch.diag(torch.full((x.shape[1],), torch.inf, dtype=x.dtype))


def as_sets(lists):
    return [[set(row[row >= 0].tolist()) for row in frame] for frame in lists]


@given(
    N=st.integers(1, 60),
    n=st.integers(1, 3),
    radius=st.floats(0.05, 20),
    seed=st.integers(0, 99),
)
def test_all_within_the_radius_and_no_other(N, n, radius, seed):
    x = cloud(N, n, seed=seed)
    near = distances(x) <= radius
    expected = [[set(row.nonzero().flatten().tolist()) for row in frame] for frame in near]
    assert as_sets(radius_neighbours(x, radius)) == expected


@pytest.mark.parametrize("cell", [torch.diag(torch.tensor([4.0, 5.0, 6.0]).double()), SKEWED])
@pytest.mark.parametrize("radius", [0.3, 0.9, 1.6, 1.9])
def test_in_a_box_the_shortest_image_counts(cell, radius):
    x = cloud(80, size=20.0)  # not wrapped
    near = distances(x, cell) <= radius
    expected = [[set(row.nonzero().flatten().tolist()) for row in frame] for frame in near]
    assert as_sets(radius_neighbours(x, radius, box=cell)) == expected
    each = torch.stack([cell, 1.5 * cell])  # a cell of its own for each cloud
    for f in range(2):
        alone = radius_neighbours(x[f], radius, box=each[f])
        assert as_sets(radius_neighbours(x, radius, box=each))[f] == as_sets(alone[None])[0]


@pytest.mark.parametrize("cell", [None, SKEWED])
@pytest.mark.parametrize("k", [1, 4, 11, 60])
def test_the_nearest_in_order(cell, k):
    x = cloud(90, size=4.0)
    expected = distances(x, cell).topk(k, largest=False).indices
    assert torch.equal(nearest_neighbours(x, k, box=cell), expected)


def test_the_nearest_first_and_no_more_than_asked_for():
    x = cloud(50)
    all_of_them = radius_neighbours(x, 3.0)
    assert torch.equal(radius_neighbours(x, 3.0, most=5), all_of_them[..., :5])
    d = distances(x).gather(2, all_of_them.clamp(min=0))
    d = d.masked_fill(all_of_them < 0, torch.inf)
    assert (d.diff(dim=-1).nan_to_num(0) >= 0).all()


def test_few_nodes_many_at_one_place_and_none():
    assert radius_neighbours(torch.zeros(1, 3), 1.0).shape == (1, 0)
    assert nearest_neighbours(torch.zeros(1, 2, 3), 4).tolist() == [
        [[1, -1, -1, -1], [0, -1, -1, -1]]
    ]
    together = radius_neighbours(torch.zeros(5, 2), 1e-3)
    assert as_sets(together[None])[0][2] == {0, 1, 3, 4}


def test_nodes_that_do_not_exist_have_no_neighbours_and_are_none():
    x = cloud(20)
    x[1, 12:] = torch.nan
    exists = torch.ones(2, 20, dtype=torch.bool)
    exists[1, 12:] = False
    lists = nearest_neighbours(x, 5, present=exists)
    assert (lists[1, 12:] == -1).all()
    assert lists[1].max() < 12
    with pytest.raises(InputError, match="x: NaN or infinite"):
        radius_neighbours(x, 1.0)


def test_a_graph_with_lists_forecasts_as_with_all_pairs():
    """A radius that reaches everybody leaves the forecast as it is."""
    graph = particles(N=6)
    model = build_model("set", like=graph, hidden=8, blocks=2).double().eval()
    for options in ({"radius": 1e3}, {"k": 5}, {"k": 2**53}):
        for per_frame in (False, True):
            listed = connect(graph, per_frame=per_frame, **options)
            assert listed.neighbours.shape == (3, 3 if per_frame else 1, 6, 5)
            torch.testing.assert_close(model(listed).x, model(graph).x)
            torch.testing.assert_close(model(listed).v, model(graph).v)


def test_lists_turn_move_and_relabel_with_the_graph():
    graph = particles(N=12)

    def model(graph: SpacetimeGraph):
        bare = graph.replace(edge_attr=None)
        return egnn(connect(bare, radius=1.7, per_frame=True))

    egnn = build_model("egnn", edge_features=0, hidden=8).double()
    assert_equivariant(model, graph)


def test_missing_nodes_and_frames():
    graph = masked()
    for per_frame in (False, True):
        listed = connect(graph, k=2, per_frame=per_frame)
        assert (listed.neighbours[2, :, 3:] == -1).all()  # that graph has three nodes
        assert listed.neighbours[2].max() < 3
    for b in range(3):
        for t in range(5):
            there = graph.observed[b, t]
            lists = listed.neighbours[b, t]
            assert (lists[~there] == -1).all()
            assert there[lists[lists >= 0]].all()
    assert (connect(graph, k=2).neighbours[0, 0, 1] >= 0).all()  # missing in the last frame


def test_nodes_that_are_missing_in_the_last_frame_are_where_they_would_be():
    x = torch.tensor([[0.0, 5.0, 9.0], [torch.nan, 5.0, 9.0]])[None, ..., None]
    v = torch.tensor([8.0, 0.0, 0.0]).expand(1, 2, 3)[..., None]
    graph = SpacetimeGraph(x, v, observed=~x[..., 0].isnan())
    assert connect(graph, k=1).neighbours[0, 0, :, 0].tolist() == [2, 0, 0]


def test_what_cannot_be():
    x = cloud(10)
    with pytest.raises(InputError, match="radius: expected a positive"):
        radius_neighbours(x, 0.0)
    with pytest.raises(InputError, match="radius: in a box it is at most half"):
        radius_neighbours(x, 2.6, box=torch.tensor([5.0, 5.0, 5.0]))
    with pytest.raises(InputError, match="k: expected a positive"):
        nearest_neighbours(x, 0)
    with pytest.raises(InputError, match=r"k: expected a positive whole number, found 2\.5"):
        nearest_neighbours(x, 2.5)
    with pytest.raises(InputError, match="most: expected"):
        radius_neighbours(x, 1.0, most=-1)
    with pytest.raises(InputError, match=r"present: expected .* \(2, 10\), found .* \(2, 9\)"):
        nearest_neighbours(x, 2, present=torch.ones(2, 9, dtype=torch.bool))
    with pytest.raises(InputError, match=r"box: expected edge lengths \(3,\).* found \(3, 3, 3\)"):
        nearest_neighbours(x, 2, box=torch.eye(3).expand(3, 3, 3))
    with pytest.raises(InputError, match="box: expected a cell with a volume"):
        nearest_neighbours(x, 2, box=torch.zeros(3))
    with pytest.raises(InputError, match="either a radius or k"):
        connect(particles())
    with pytest.raises(InputError, match="has neighbours already"):
        connect(connect(particles(), k=2), k=2)
