import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from spacetime_en import Forecast, InputError, SpacetimeGraph, build_model, geometry
from tests.helpers import masked, particles, random_neighbours

X = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
V = torch.ones_like(X)


def with_nan(index: tuple[int, ...]) -> torch.Tensor:
    x = X.clone()
    x[index] = torch.nan
    return x


BAD = {
    "x without a batch axis": (dict(x=X[0], v=V[0]), r"x: expected .*\(B, L, N, n\).*\(4, 3, 3\)"),
    "x empty": (dict(x=X[:, :, :0], v=V[:, :, :0]), r"x: expected a non-empty shape"),
    "x of whole numbers": (dict(x=X.long(), v=V), r"x: expected a floating-point dtype"),
    "v of another shape": (dict(x=X, v=V[..., :2]), r"v: expected shape .*found \(2, 4, 3, 2\)"),
    "NaN position": (dict(x=with_nan((1, 2, 0, 1)), v=V), r"x: 1 .*graph 1, frame 2, node 0"),
    "infinite velocity": (dict(x=X, v=V / 0), r"v: 24 node\(s\) hold NaN or infinite"),
    "mixed N": (dict(x=[X[0], X[0][:, :2]], v=[V[0], V[0][:, :2]]), r"x: .*collate.*observed"),
    "mixed N, arrays": (dict(x=[np.ones((4, 3, 3)), np.ones((4, 2, 3))], v=V), r"x: .*collate"),
    "features of another N": (
        dict(x=X, v=V, features=torch.ones(2, 4, 5, 1)),
        r"features: expected shape .*found \(2, 4, 5, 1\)",
    ),
    "edge_attr of another N": (
        dict(x=X, v=V, edge_attr=torch.ones(2, 3, 4, 1)),
        r"edge_attr: expected shape \(2, 3, 3, any\).*found \(2, 3, 4, 1\)",
    ),
    "NaN edge": (
        dict(x=X, v=V, edge_attr=torch.full((2, 3, 3, 1), torch.nan)),
        r"edge_attr: .*graph 0, node 0, neighbour 1",
    ),
    "neighbour out of range": (
        dict(x=X, v=V, neighbours=torch.tensor([[1], [2], [3]])),
        r"neighbours: found node 3, expected 0 to 2",
    ),
    "neighbour below -1": (
        dict(x=X, v=V, neighbours=torch.tensor([[1], [2], [-2]])),
        r"neighbours: found node -2",
    ),
    "neighbours of another N": (
        dict(x=X, v=V, neighbours=torch.tensor([[1], [0]])),
        r"neighbours: expected shape \(N, K\).*found \(2, 1\)",
    ),
    "neighbours that are no indices": (
        dict(x=X, v=V, neighbours=torch.ones(3, 1)),
        r"neighbours: expected whole numbers",
    ),
    "observed of another type": (
        dict(x=X, v=V, observed=torch.ones(2, 4, 3)),
        r"observed: expected a boolean tensor of shape \(2, 4, 3\), .*found torch.float32",
    ),
    "observed of another shape": (
        dict(x=X, v=V, observed=torch.ones(2, 3, dtype=torch.bool)),
        r"observed: expected .* \(2, 4, 3\), \(2, 1, 3\) or \(2, 4, 1\), found .* \(2, 3\)",
    ),
    "graph without frames": (
        dict(x=X, v=V, observed=torch.tensor([[True] * 4, [False] * 4])[..., None]),
        r"observed: graph 1 of the batch has no True entry",
    ),
    "target times backwards": (
        dict(x=X, v=V, horizon=[[1.0, 2.0], [2.0, 1.0]]),
        r"horizon: expected the target times in increasing order",
    ),
    "no target times": (dict(x=X, v=V, horizon=torch.ones(2, 0)), r"horizon: expected at least"),
    "target times of another batch": (
        dict(x=X, v=V, horizon=torch.ones(3, 2)),
        r"horizon: expected shape \(\) or \(2,\) or \(2, any\), found \(3, 2\)",
    ),
    "flat box": (dict(x=X, v=V, box=torch.ones(1, 3, 3)), r"box: .*volume zero"),
    "no velocities": (dict(x=X, v=None), r"v: expected velocities .*from_positions"),
    "words": (dict(x="abc", v=V), r"x: expected numbers, found 'abc'"),
    "a box turned inside out": (dict(x=X, v=V, box=[1.0, -1.0, 2.0]), r"box: expected positive"),
    "a box for each of n graphs": (dict(x=X, v=V, box=torch.ones(2, 3)), r"box: expected shape"),
    "horizon in the past": (dict(x=X, v=V, horizon=-1.0), r"horizon: expected a time ahead"),
    "box of another n": (dict(x=X, v=V, box=[1.0, 2.0]), r"box: expected shape \(3,\)"),
    "times backwards": (dict(x=X, v=V, times=[0.0, 2.0, 1.0, 3.0]), r"times: .*increasing"),
    "infinite horizon": (dict(x=X, v=V, horizon=float("inf")), r"horizon: expected finite"),
}


@pytest.mark.parametrize(("fields", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_told_in_one_sentence(fields, message):
    with pytest.raises(InputError, match=message) as error:
        SpacetimeGraph(**fields)
    assert "\n" not in str(error.value)


def test_charges_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"charge: expected shape \(B, N\) = \(2, 3\)"):
        SpacetimeGraph.from_particles(X, V, torch.ones(2, 3, 1))


def test_nan_charges_and_a_second_edge_attr_are_refused():
    with pytest.raises(InputError, match=r"edge_attr: .*NaN"):
        SpacetimeGraph.from_particles(X, V, torch.full((2, 3), torch.nan))
    with pytest.raises(InputError, match=r"edge_attr: from_particles sets it"):
        SpacetimeGraph.from_particles(X, V, torch.ones(2, 3), edge_attr=torch.ones(2, 3, 3, 1))


def test_replace_checks_like_a_new_graph_and_takes_its_own_fields():
    graph = particles(neighbours=random_neighbours(4, 2), box=[9.0, 9.0, 9.0])
    assert graph.replace(horizon=3.0).horizon.tolist() == [[3], [3], [3]]
    with pytest.raises(InputError, match="v: expected shape"):
        graph.replace(v=torch.ones(1))


@pytest.mark.parametrize("strange", [X.numpy()[:, ::-1], X.numpy().astype(">f4"), X.tolist()])
def test_strange_arrays_are_taken(strange):
    assert SpacetimeGraph(strange, V).x.dtype in (torch.float32, torch.float64)


def test_values_behind_a_mask_may_be_anything():
    graph = masked()
    assert graph.x.isnan().any()


def test_defaults_and_canonical_shapes():
    graph = SpacetimeGraph(X, V, box=[1.0, 2.0, 3.0], neighbours=[[1], [2], [0]])
    assert graph.times.tolist() == [[0, 1, 2, 3]] * 2
    assert graph.horizon.tolist() == [[1], [1]]
    assert graph.neighbours.shape == (2, 1, 3, 1)
    assert graph.box.shape == (2, 3, 3)
    assert graph.observed is None
    torch.testing.assert_close(graph.h, V.norm(dim=-1, keepdim=True))


def test_constant_features_hold_for_every_frame():
    mass = torch.rand(2, 3, 2)
    graph = SpacetimeGraph(X, V, features=mass)
    assert graph.h.shape == (2, 4, 3, 2)
    assert (graph.h == mass[:, None]).all()


def test_what_is_the_same_in_all_graphs_needs_no_batch_axis():
    graph = SpacetimeGraph(
        X, V, features=torch.rand(3, 2), edge_attr=torch.rand(3, 1, 4), neighbours=[[1], [2], [0]]
    )
    assert graph.features.shape == (2, 4, 3, 2)
    assert graph.edge_attr.shape == (2, 1, 3, 1, 4)


def test_numpy_and_lists_are_taken_and_cast_to_the_dtype_of_x():
    graph = SpacetimeGraph(X.numpy().astype(np.float64), V.tolist(), horizon=2, times=range(4))
    assert {graph.x.dtype, graph.v.dtype, graph.times.dtype} == {torch.float64}


def test_from_particles_gives_speeds_and_products_of_charges():
    charge = torch.tensor([[1, -1, 1], [-1, -1, 1]])
    graph = SpacetimeGraph.from_particles(X, V, charge)
    assert graph.h.shape == (2, 4, 3, 1)
    assert graph.edge_attr.shape == (2, 1, 3, 3, 1)
    assert graph.edge_attr[0, 0, 0, 1] == -1
    assert graph.edge_attr[1, 0, 0, 1] == 1


def test_from_particles_with_neighbours_multiplies_the_charges_along_the_list():
    charge = torch.tensor([[1.0, -2.0, 3.0], [1.0, 1.0, -1.0]])
    graph = SpacetimeGraph.from_particles(X, V, charge, neighbours=[[1, 2], [0, -1], [1, 0]])
    assert graph.edge_attr[0, 0, :, :, 0].tolist()[0] == [-2, 3]
    assert graph.edge_attr[0, 0, 2, :, 0].tolist() == [-6, 3]


def test_velocities_are_differences_of_observed_frames():
    times = torch.tensor([0.0, 1.0, 3.0, 4.0])
    v = torch.tensor([2.0, -1.0, 0.5])
    x = X[:, :1] + times[:, None, None] * v
    graph = SpacetimeGraph.from_positions(x, times=times)
    torch.testing.assert_close(graph.v, v.expand_as(x))


def test_times_far_from_zero_keep_their_steps():
    x = 200.0 * torch.arange(4.0)[None, :, None, None]
    graph = SpacetimeGraph.from_positions(x, times=1.7e9 + 200 * torch.arange(4.0).double())
    assert graph.v.flatten().tolist() == [1, 1, 1, 1]
    assert graph.to(dtype=torch.float16).times.dtype == torch.float64


def test_edge_attributes_of_missing_frames_are_not_read():
    edges = torch.zeros(2, 4, 3, 3, 1)
    seen = torch.ones(2, 4, 3, dtype=torch.bool)
    seen[0, 2] = seen[1, 3, 1] = False
    edges[0, 2] = edges[1, 3, 1] = edges[1, 3, :, 1] = torch.nan
    graph = SpacetimeGraph(X, V, edge_attr=edges, observed=seen)
    assert build_model("egnn")(graph).x.isfinite().all()
    assert build_model("set-flow")(graph).x.isfinite().all()


def test_velocities_skip_missing_frames():
    x = torch.arange(5.0)[None, :, None, None] ** 2  # 0, 1, 4, 9, 16
    mask = torch.tensor([False, True, False, True, True])[None, :, None]
    x = x.masked_fill(~mask[..., None], torch.nan)
    graph = SpacetimeGraph.from_positions(x, observed=mask)
    assert graph.v.flatten().tolist() == [0, 4, 0, 4, 7]  # (9 - 1)/2 at 1 and 3, then 16 - 9


def test_velocities_are_differences_of_a_nodes_own_observations_over_true_times():
    """A plain loop over nodes, each with gaps of its own; seen once, a node is at rest."""
    gaps = masked(L=7)
    times = torch.tensor([0.0, 0.5, 2.0, 3.0, 3.1, 7.0, 8.0], dtype=torch.float64)
    seen = gaps.observed.clone()
    seen[0, :, 3] = torch.arange(7) == 4
    graph = SpacetimeGraph.from_positions(gaps.x, observed=seen, times=times)
    for b in range(3):
        for i in range(5):
            frames = seen[b, :, i].nonzero()[:, 0].tolist()
            expected = torch.zeros(7, 3, dtype=torch.float64)
            for before, t in itertools.pairwise(frames):
                step = graph.x[b, t, i] - graph.x[b, before, i]
                expected[t] = step / (times[t] - times[before])
            if len(frames) > 1:
                expected[frames[0]] = expected[frames[1]]
            torch.testing.assert_close(graph.v[b, :, i], expected)
    assert not graph.v[0, :, 3].any()


def test_velocities_in_a_box_take_the_short_way():
    x = torch.tensor([0.8, 0.9, 0.0, 0.1])[None, :, None, None]
    graph = SpacetimeGraph.from_positions(x, box=[1.0])
    torch.testing.assert_close(graph.v, torch.full_like(x, 0.1))
    torch.testing.assert_close(graph.unwrapped_x().flatten(), torch.tensor([0.8, 0.9, 1.0, 1.1]))


def test_velocities_need_two_observed_frames():
    with pytest.raises(InputError, match="at least two observed frames"):
        SpacetimeGraph.from_positions(X[:, :1])


def test_unwrapping_bridges_missing_frames():
    x = torch.tensor([torch.nan, 0.8, torch.nan, 0.1])[None, :, None, None]
    mask = torch.tensor([[False, True, False, True]])
    graph = SpacetimeGraph(x, torch.zeros_like(x), observed=mask[..., None], box=[1.0])
    torch.testing.assert_close(graph.unwrapped_x()[mask].flatten(), torch.tensor([0.8, 1.1]))


def test_last_frame_is_the_last_observed():
    mask = torch.tensor([[True, True, True, False], [False, True, False, True]])
    assert SpacetimeGraph(X, V, observed=mask[..., None]).last_frame.tolist() == [2, 3]
    assert SpacetimeGraph(X, V).last_frame.tolist() == [3, 3]


SEEN = torch.tensor([[[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[1] * 3] * 3 + [[0] * 3]]) > 0


def test_each_node_has_a_last_observation_of_its_own():
    graph = SpacetimeGraph(X, V, observed=SEEN, times=[0.0, 1.0, 2.0, 5.0])
    assert graph.last_observed.tolist() == [[2, 3, 0], [2, 2, 2]]  # (of padding: 0)
    assert graph.age[:, :2].tolist() == [[3, 0], [0, 0]]
    assert graph.since.tolist() == [[5, 4, 3, 0], [2, 1, 0, -3]]
    assert graph.present.tolist() == [[True, True, False], [True] * 3]
    plain = SpacetimeGraph(X, V)
    assert plain.present is None
    assert plain.last_observed.tolist() == [[3] * 3] * 2
    assert not plain.age.any()


def test_the_latest_frame_has_all_nodes_where_they_would_be_by_now():
    features = torch.rand(2, 4, 3, 2)
    graph = SpacetimeGraph(
        X, V, observed=SEEN, times=[0.0, 1.0, 2.0, 5.0], features=features, horizon=[1.0, 2.0]
    )
    latest = graph.latest()
    assert latest.x.shape == (2, 1, 3, 3)
    assert latest.times.tolist() == [[5], [2]]
    assert latest.horizon.tolist() == [[1], [2]]
    assert latest.observed.tolist() == [[[True, True, False]], [[True] * 3]]
    torch.testing.assert_close(latest.x[0, 0, 0], X[0, 2, 0] + 3 * V[0, 2, 0])
    torch.testing.assert_close(latest.x[0, 0, 1], X[0, 3, 1])
    torch.testing.assert_close(latest.x[1, 0], X[1, 2])
    torch.testing.assert_close(latest.features[0, 0, 0], features[0, 2, 0])
    torch.testing.assert_close(SpacetimeGraph(X, V).latest().x, X[:, -1:])


def test_the_latest_edges_are_the_last_between_nodes_that_were_both_there():
    edges = torch.arange(4.0).view(1, 4, 1, 1, 1).expand(2, 4, 3, 3, 1)
    edges = edges.masked_fill(~(SEEN[..., None] & SEEN[..., None, :])[..., None], torch.nan)
    latest = SpacetimeGraph(X, V, observed=SEEN, edge_attr=edges).latest()
    assert latest.edge_attr[0, 0, 0, 1] == latest.edge_attr[0, 0, 1, 0] == 2
    assert latest.edge_attr[0, 0, 0, 2] == 0  # never
    assert (latest.edge_attr[1, 0][latest.edge_mask[1, 0]] == 2).all()
    lists = torch.tensor([[1], [0], [0]]).expand(2, 4, 3, 1)
    listed = SpacetimeGraph(X, V, observed=SEEN, neighbours=lists).latest()
    assert listed.neighbours[:, 0, :, 0].tolist() == [[-1, -1, -1], [1, 0, 0]]


def test_edge_mask_leaves_out_self_missing_and_unused():
    seen = torch.ones(2, 4, 3, dtype=torch.bool)
    seen[1, :, 2] = seen[0, 1, 1] = False
    graph = SpacetimeGraph(X, V, neighbours=[[0, 1], [2, -1], [0, 1]], observed=seen)
    assert graph.edge_mask[0, 0].tolist() == [[False, True], [True, False], [True, True]]
    assert graph.edge_mask[0, 1].tolist() == [[False, False], [False, False], [True, False]]
    assert graph.edge_mask[1, 0].tolist() == [[False, True], [False, False], [False, False]]
    complete = SpacetimeGraph(X, V, observed=seen).edge_mask
    for b in range(2):
        for t in range(4):
            there = seen[b, t]
            expected = [[bool(there[i] & there[j]) and i != j for j in range(3)] for i in range(3)]
            assert complete[b, t].tolist() == expected


def test_whole_frames_and_whole_nodes_are_short_forms_of_observed():
    frames = torch.tensor([[True, True, False, True], [True] * 4])
    nodes = torch.tensor([[True, False, True], [True] * 3])
    assert torch.equal(
        SpacetimeGraph(X, V, observed=frames[..., None]).observed, frames[..., None].expand(2, 4, 3)
    )
    assert torch.equal(
        SpacetimeGraph(X, V, observed=nodes[:, None]).observed, nodes[:, None].expand(2, 4, 3)
    )


def test_one_target_time_or_several():
    assert SpacetimeGraph(X, V, horizon=[2.0, 3.0]).horizon.tolist() == [[2], [3]]
    path = [[1.0, 2.0, 4.0], [0.5, 1.0, 1.5]]
    assert SpacetimeGraph(X, V, horizon=path).horizon.tolist() == path


def test_a_forecast_is_turned_moved_and_relabelled_with_all_that_it_holds():
    g = torch.Generator().manual_seed(0)
    x, v = torch.randn(2, 2, 3, 4, 2, generator=g)  # B = 2, T = 3, N = 4
    samples = torch.randn(2, 5, 3, 4, 2, generator=g)
    mask, spread = torch.rand(2, 3, 4, generator=g) < 0.5, torch.rand(2, 3, 4, generator=g)
    forecast = Forecast(x, v, torch.ones(2, 3).cumsum(1), mask, spread, samples)
    assert torch.equal(forecast.last[0], x[:, 2])
    assert torch.equal(forecast.last[1], v[:, 2])
    q, b, p = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.tensor([1.0, 2.0]), [2, 0, 3, 1]
    turned, moved, relabelled = forecast.rotate(q), forecast.translate(b), forecast.permute(p)
    for name in ("x", "v", "samples"):
        before = getattr(forecast, name)
        torch.testing.assert_close(getattr(turned, name)[..., 1], before[..., 0])
        assert torch.equal(getattr(moved, name), before + (0 if name == "v" else b))
        assert torch.equal(getattr(relabelled, name)[..., 1, :], before[..., 0, :])
    for name in ("mask", "spread"):
        before = getattr(forecast, name)
        assert torch.equal(getattr(turned, name), before)
        assert torch.equal(getattr(moved, name), before)
        assert torch.equal(getattr(relabelled, name)[..., 0], before[..., 2])
    assert torch.equal(relabelled.times, forecast.times)
    assert forecast[[1]].samples.shape == (1, 5, 3, 4, 2)


@given(st.integers(0, 1000))
def test_group_actions_compose_and_leave_distances(seed):
    g = torch.Generator().manual_seed(seed)
    graph = particles(n=3)
    q, r = geometry.random_orthogonal(3, g), geometry.random_orthogonal(3, g)
    b = geometry.random_translation(3, 10.0, g)
    p = geometry.random_permutation(4, g)
    torch.testing.assert_close(graph.rotate(q).rotate(r).x, graph.rotate(r @ q).x)
    distances = torch.cdist(graph.x, graph.x)
    moved = graph.rotate(q).translate(b)
    torch.testing.assert_close(torch.cdist(moved.x, moved.x), distances)
    torch.testing.assert_close(graph.permute(p).permute(p.argsort()).x, graph.x)


def test_permutation_relabels_edges_and_neighbours():
    neighbours = random_neighbours(4, 2)
    graph = particles(neighbours=neighbours)
    p = torch.tensor([2, 0, 3, 1])
    moved = graph.permute(p)
    for new in range(4):
        for k in range(2):
            old = int(graph.neighbours[0, 0, p[new], k])
            now = int(moved.neighbours[0, 0, new, k])
            assert (now == -1) if old == -1 else (int(p[now]) == old)
    dense = particles()
    assert dense.permute(p).edge_attr[0, 0, 1, 3] == dense.edge_attr[0, 0, 0, 1]


def test_rotation_turns_the_box():
    graph = particles(n=2, box=[3.0, 4.0])
    q = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(graph.rotate(q).box[0], torch.tensor([[0.0, 3], [-4, 0]]).double())


@pytest.mark.parametrize(
    "graph", [particles(), masked(), particles(neighbours=[[1], [2], [3], [0]])]
)
def test_pickle_and_pytree_round_trips(graph):
    leaves, spec = pytree.tree_flatten(graph)
    for copy in (pickle.loads(pickle.dumps(graph)), pytree.tree_unflatten(leaves, spec)):
        assert copy.fields().keys() == graph.fields().keys()
        for name, value in copy.fields().items():
            torch.testing.assert_close(value, getattr(graph, name), equal_nan=True)


def test_torch_save_and_load_round_trip(tmp_path):
    torch.save(particles(), tmp_path / "graph.pt")
    torch.testing.assert_close(torch.load(tmp_path / "graph.pt").x, particles().x)


def test_to_casts_reals_and_keeps_masks_and_indices():
    graph = particles(neighbours=random_neighbours(4, 2)).to(dtype=torch.float32)
    assert graph.x.dtype == graph.horizon.dtype == torch.float32
    assert graph.neighbours.dtype == torch.int64
    assert masked().to("cpu", torch.float32).observed.dtype == torch.bool
    assert particles().to(torch.float32).x.dtype == torch.float32


def test_indexing_picks_graphs():
    graph = particles(B=3)
    assert len(graph) == 3
    assert len(graph[(0, 2)]) == 2
    assert len(graph[1]) == len(graph[np.int64(1)]) == len(graph[torch.tensor(1)]) == 1
    torch.testing.assert_close(graph[[2, 0]].x, graph.x[[2, 0]])
    torch.testing.assert_close(graph[1:].horizon, graph.horizon[1:])


def test_repr_shows_shapes():
    assert repr(Forecast(torch.ones(2, 3, 1), torch.ones(2, 3, 1))) == (
        "Forecast(x=(2, 3, 1), v=(2, 3, 1))"
    )


def test_single_nodes_are_measured_by_the_way_they_go():
    """The centroid of one node is the node: its distance from it says nothing."""
    x = torch.arange(4.0).view(1, 4, 1, 1) * torch.tensor([3.0, 4.0]) * 0.5  # speed 5, 0.5 a frame
    graph = SpacetimeGraph.from_positions(x, times=0.5 * torch.arange(4.0), horizon=2.0)
    assert graph.scales() == pytest.approx({"length_scale": 5 * 3.5, "time_scale": 3.5})
    with pytest.raises(InputError, match=r"at rest.*--model\.length-scale, --model\.time-scale"):
        graph.replace(v=torch.zeros_like(graph.v)).scales()
