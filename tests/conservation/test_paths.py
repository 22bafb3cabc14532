import numpy as np
import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph
from spacetime_en.conservation.paths import Paths, true_paths
from spacetime_en.data import Task, Trajectories, Windows
from tests.conservation.systems import simulated
from tests.helpers import particles


def test_a_path_is_the_frames_and_targets_at_even_distances(tiny_task):
    """The target of this task is ten frames after the last: it is left out."""
    paths = true_paths(tiny_task.train)
    assert paths.x.shape == (40, 3, 5, 3)
    graph, _ = tiny_task.train[:]
    assert torch.equal(paths.x, graph.x.double())
    assert set(paths.pairs) == {"charge_i charge_j"}
    assert torch.equal(
        paths.pairs["charge_i charge_j"].diagonal(dim1=1, dim2=2).sum(1), 0 * paths.mass[:, 0]
    )
    assert true_paths(simulated("gravity").test).x.shape == (80, 11, 5, 3)


def test_attributes_have_their_names():
    paths = true_paths(simulated("gravity").test)
    assert set(paths.nodes) == {"mass"}
    runs = simulated("gravity").test
    expected = np.asarray(runs.trajectories.attributes["mass"][runs.runs])
    np.testing.assert_allclose(paths.mass, expected, rtol=1e-6)


def test_features_that_change_are_left_out():
    graph = particles(L=3)
    features = torch.stack([graph.x[..., 0], torch.ones_like(graph.x[..., 0])], dim=-1)
    graph = graph.replace(features=features)
    paths = Paths.of(graph, graph.x, graph.v, None)
    assert set(paths.nodes) == {"feature2"}
    assert set(paths.pairs) == {"attribute1"}


def test_neighbour_lists_become_matrices():
    complete = particles(N=3)
    lists = torch.tensor([[1, 2], [0, 2], [0, 1]])
    graph = SpacetimeGraph(
        complete.x,
        complete.v,
        neighbours=lists,
        edge_attr=complete.edge_attr[:, 0].gather(
            2, lists[None, :, :, None].expand(len(complete), -1, -1, 1)
        ),
    )
    one, other = (Paths.of(g, g.x, g.v, None).pairs["attribute1"] for g in (complete, graph))
    assert torch.equal(one, other)


def test_differences_belong_to_the_middle_of_two_frames():
    times = 0.1 * np.arange(12)
    angle = times + np.arange(30)[:, None]
    x = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[:, :, None]  # one node on a circle
    x = np.concatenate([x, -x], axis=2)
    windows = Windows(Trajectories.from_arrays(x, times=times), 6, 1, "1..6")
    paths = true_paths(windows)
    assert paths.x.shape == (30, 11, 2, 2)
    # Position and velocity are at right angles, as they are on a circle.
    assert (paths.x * paths.v).sum(-1).abs().max() < 1e-5


def test_components_are_those_of_edges_that_are_not_zero():
    x = torch.randn(1, 2, 5, 3)
    a = torch.zeros(1, 5, 5)
    a[0, 0, 2] = a[0, 2, 0] = a[0, 2, 4] = a[0, 4, 2] = 1
    paths = Paths(x, x, torch.ones(1, 5, dtype=torch.bool), pairs={"edge": a})
    assert paths.connected().present.tolist() == [[True, False, True, False, True]]
    everyone = Paths(x, x, torch.tensor([[True, True, False, True, True]]))
    assert everyone.connected().present.tolist() == [[True, True, False, True, True]]


def test_one_frame_is_no_path():
    runs = Trajectories.from_arrays(np.random.default_rng(0).standard_normal((30, 3, 2, 2)))
    task = Task.from_trajectories(runs, length=2, stride=1, target_steps=1, counts=(10, 10, 10))
    assert true_paths(task.train).x.shape[1] == 2
    short = Windows(runs.from_arrays(runs.x[:, :2], times=[0.0, 1.0], v=runs.v[:, :2]), 1, 1, 1)
    assert true_paths(short).x.shape[1] == 2


def test_too_few_differences_are_no_path():
    x = np.random.default_rng(0).standard_normal((30, 3, 2, 2))
    runs = Trajectories.from_arrays(x, times=[0.0, 1.0, 9.0], steps=[0, 1, 9])
    with pytest.raises(InputError, match="windows of more frames are needed"):
        true_paths(Windows(runs, 2, 1, 8))


def test_too_many_nodes():
    runs = Trajectories.from_arrays(np.random.default_rng(0).standard_normal((1, 3, 4000, 2)))
    with pytest.raises(InputError, match="nodes: 4,000 of them"):
        true_paths(Windows(runs, 2, 1, 1))


def test_windows_in_which_a_node_comes_or_goes_are_left_out():
    """It is unobserved, but acts on the others."""
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 3))
    observed = np.ones((2, 5, 3), dtype=bool)
    observed[0, 2, 1] = False  # of the first run
    observed[:, :, 2] = False  # throughout: it was never there
    runs = Trajectories.from_arrays(x, x, observed=observed)
    path = true_paths(Windows(runs, 4, 1, 1))
    assert path.present.tolist() == [[True, True, False]]
    np.testing.assert_allclose(path.x[0, :, :2], x[1, :, :2], rtol=1e-6)
