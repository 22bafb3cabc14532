import tracemalloc

import numpy as np
import pytest
import torch

from spacetime_en import InputError
from spacetime_en.data import Trajectories, Windows, simulate
from spacetime_en.neighbours import connect


def counting(runs=3, frames=20):
    """x counts 100 per run and 1 per step."""
    x = 100 * np.arange(runs)[:, None] + np.arange(frames)
    x = np.broadcast_to(x[:, :, None, None], (runs, frames, 2, 1))
    return Trajectories.from_arrays(x, times=0.5 * np.arange(frames))


def test_a_window_is_l_frames_and_the_state_h_steps_later():
    windows = Windows(counting(), length=3, stride=2, target_steps=5)
    assert len(windows) == 3 * (20 - (4 + 5))
    graph, target = windows[12]  # run 1, start 1
    assert graph.x[0, :, 0, 0].tolist() == [101, 103, 105]
    assert target.x[0, 0, 0] == 110
    assert graph.times[0].tolist() == [0, 1, 2]
    assert graph.horizon.tolist() == [2.5]


def test_batches_are_the_items_in_order(monkeypatch):
    windows = Windows(counting(), length=3, stride=2, target_steps=5)
    for limit in (1 << 30, 0):  # kept in memory, and read each time
        monkeypatch.setattr("spacetime_en.data.windows._IN_MEMORY", limit)
        graph, target = windows[[5, 0, 32]]
        for k, i in enumerate((5, 0, 32)):
            assert torch.equal(graph.x[k], windows[i][0].x[0])
            assert torch.equal(target.v[k], windows[i][1].v[0])
        assert len(windows[4:9][0]) == 5
        assert len(windows[torch.tensor([1, 2])][0]) == 2


def test_a_million_windows_take_no_memory_of_their_own(tmp_path):
    """What is known of windows is known of runs and of frames; windows are read, and not kept."""
    x = np.random.default_rng(0).standard_normal((1, 2_000, 20, 3))
    few = Trajectories.from_arrays(x, x)
    many = Trajectories(
        *(np.broadcast_to(a, (1_000, *x.shape[1:])) for a in (x, x)), few.steps, few.times
    )
    tracemalloc.start()
    windows = Windows(many, length=2, stride=1, target_steps=1)
    graph, _ = windows[[3, len(windows) - 1]]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(windows) == 1_000 * 1_998
    assert not windows.fits_in_memory
    assert peak < 1e6
    assert torch.equal(graph.x[1], Windows(few, length=2, stride=1, target_steps=1)[-1][0].x[0])


def test_frames_are_found_by_their_steps():
    t = simulate("charged", 4)
    windows = Windows(t, length=10, stride=1, target_steps=1_000)
    assert len(windows) == 4
    graph, target = windows[2]
    np.testing.assert_allclose(graph.x[0], t.x[2, :10], rtol=1e-6)
    np.testing.assert_allclose(target.x[0], t.x[2, 10], rtol=1e-6)
    assert graph.horizon.item() == pytest.approx(10.0)
    assert graph.edge_attr[0, 0, 0, 1, 0] == t.charge[2, 0] * t.charge[2, 1]
    assert graph.features is None  # the paper's: the speed


def test_too_few_frames_say_so():
    sentence = "no window of 10 frames, 3 frame intervals apart, with a target 9"
    with pytest.raises(InputError, match=sentence):
        Windows(counting(), length=10, stride=3, target_steps=9)


@pytest.mark.parametrize("every", [1, 10])
def test_stride_and_target_steps_count_the_commonest_gap_between_frames(every):
    x = np.random.default_rng(0).standard_normal((1, 9, 2, 3))
    kept = np.array([0, 1, 2, 3, 4, 6, 7, 8, 20])  # one frame is missing, the last is far away
    windows = Windows(Trajectories.from_arrays(x, x, steps=every * kept), 3, 1, 2)
    assert windows.frame_interval == every
    assert windows.cut.frames().tolist() == [[0, 1, 2, 4], [2, 3, 4, 5]]


def test_a_frame_interval_of_your_own_makes_other_gaps_whole():
    t = simulate("charged", 2, save=[0, 10, 20, 25])
    with pytest.raises(InputError, match="an interval is 10"):
        Windows(t, 3, 1, 1)
    windows = Windows(t, 3, 2, 1, frame_interval=5)
    assert windows.cut.frames().tolist() == [[0, 1, 2, 3]]


def test_node_attributes_join_the_speed_and_pair_attributes_become_edges():
    gravity = Windows(simulate("gravity", 2, save=[0, 10, 20]), 2, 1, 1)
    graph, _ = gravity[1]
    assert graph.features.shape == (1, 2, 5, 2)
    torch.testing.assert_close(graph.features[..., 0], graph.v.norm(dim=-1))
    assert graph.edge_attr is None
    springs = Windows(simulate("springs", 2, save=[0, 10, 20]), 2, 1, 1)
    assert springs[0][0].edge_attr.shape == (1, 1, 5, 5, 1)


def test_noise_has_its_variance_its_seed_and_is_the_same_in_every_window():
    t = simulate("charged", 300, save=[0, 10, 20, 30])
    clean = Windows(t, 2, 1, 1)[:]
    noisy = Windows(t, 2, 1, 1, noise=0.5)
    difference = noisy[:][0].x - clean[0].x
    assert difference.var() == pytest.approx(0.5, rel=0.03)
    assert (noisy[:][0].v - clean[0].v).var() == pytest.approx(0.5, rel=0.03)
    # Window 1 starts where window 0 has its second frame; the same observation, the same noise.
    assert torch.equal(noisy[0][0].x[0, 1], noisy[1][0].x[0, 0])
    assert torch.equal(noisy[0][1].x[0], noisy[1][0].x[0, 1])  # targets are observed, too
    assert torch.equal(Windows(t, 2, 1, 1, noise=0.5)[7][0].x, noisy[7][0].x)
    assert not torch.equal(Windows(t, 2, 1, 1, noise=0.5, noise_seed=1)[7][0].x, noisy[7][0].x)
    against_truth = Windows(t, 2, 1, 1, noise=0.5, targets="clean")
    assert torch.equal(against_truth[7][1].x, clean[1].x[7:8])
    assert torch.equal(against_truth[7][0].x, noisy[7][0].x)
    with pytest.raises(InputError, match="targets: expected 'observed' or 'clean' or 'zero'"):
        Windows(t, 2, 1, 1, targets="true")


def test_a_box_comes_along():
    x = np.random.default_rng(0).random((2, 4, 3, 2))
    graph, _ = Windows(Trajectories.from_arrays(x, box=[1.0, 2.0]), 2, 1, 1)[0]
    assert graph.box[0].diagonal().tolist() == [1, 2]


def crowd(num=2, frames=4, nodes=12, **fields):
    """Nodes with charges and something known of each pair."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (num, 1, nodes, 3)) + 0.1 * rng.standard_normal((num, frames, nodes, 3))
    attributes = {
        "charge": rng.choice([-1.0, 1.0], (num, nodes)),
        "bond": rng.standard_normal((num, nodes, nodes)),
    }
    return Trajectories.from_arrays(x, attributes=attributes, **fields)


@pytest.mark.parametrize("rule", [{"radius": 1.2}, {"k": 4}])
@pytest.mark.parametrize("box", [None, [3.0, 3.0, 3.0]])
def test_neighbours_are_those_of_the_last_frame_with_their_attributes(rule, box):
    data = crowd(box=box)
    complete, _ = Windows(data, 2, 1, 1, dtype=torch.float64)[:]
    sparse, _ = Windows(data, 2, 1, 1, dtype=torch.float64, **rule)[:]
    expected = connect(complete, **rule)
    assert torch.equal(sparse.neighbours, expected.neighbours)
    real = expected.edge_mask.unsqueeze(-1)
    assert torch.equal(sparse.edge_attr * real, expected.edge_attr * real)
    assert (sparse.edge_mask.sum(-1) < 11).any()


def test_many_nodes_with_few_neighbours_need_no_matrix():
    data = crowd(num=1, frames=3, nodes=3000)
    data = Trajectories.from_arrays(data.x, attributes={"charge": data.charge})
    tracemalloc.start()
    graph, _ = Windows(data, 2, 1, 1, k=5)[0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert graph.edge_attr.shape == (1, 1, 3000, 5, 1)
    assert peak < 3000 * 3000 * 4


def test_one_rule_for_neighbours():
    with pytest.raises(InputError, match=r"radius, k: .* give only that"):
        Windows(crowd(), 2, 1, 1, radius=1.0, k=3)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_zero_targets_are_zero_and_carry_the_noise_of_an_observation(noise):
    t = simulate("charged", 200, save=[0, 10, 20], seed=3)
    zero = Windows(t, 2, 1, 1, noise=noise, targets="zero")[:]
    true = Windows(t, 2, 1, 1, noise=noise)[:]
    assert torch.equal(zero[0].x, true[0].x)  # what is seen is the same
    assert zero[1].x.square().mean() == pytest.approx(noise, rel=0.1)
    assert zero[1].v.square().mean() == pytest.approx(noise, rel=0.1)


@pytest.mark.parametrize("box", [None, [9.0, 9.0]])
def test_far_from_the_origin_windows_are_the_same(box):
    """To the last digit that double precision has at 5e6, and not to half a metre."""
    x = np.random.default_rng(0).standard_normal((3, 8, 4, 2))
    for v in (None, x):
        near, far = (
            Windows(Trajectories.from_arrays(at, v, box=box), length=3, stride=1, target_steps=2)
            for at in (x, x + np.array([5e6, 4e5]))
        )
        (a, goal), (b, other) = near[:], far[:]
        shift = torch.from_numpy(np.array([5e6, 4e5]) - far.origin).float()
        torch.testing.assert_close(b.x, a.x + shift, rtol=0, atol=2e-6)
        torch.testing.assert_close(b.v, a.v, rtol=0, atol=4e-6)
        torch.testing.assert_close(other.x, goal.x + shift, rtol=0, atol=2e-6)
        elsewhere = far.with_origin(near.origin)[:1][0]
        assert elsewhere.x.min() > 3e5  # where the model was told to look from


@pytest.mark.parametrize("k", [None, 2])
def test_windows_that_are_kept_are_read_part_by_part(monkeypatch, k):
    x = np.random.default_rng(0).standard_normal((3, 20, 4, 2))
    t = Trajectories.from_arrays(x, attributes={"charge": np.ones(4), "mass": np.ones(4)})
    whole = Windows(t, length=3, stride=2, target_steps=5, k=k)[:]
    monkeypatch.setattr("spacetime_en.data.windows._AT_ONCE", 4)
    for one, two in zip(Windows(t, length=3, stride=2, target_steps=5, k=k)[:], whole, strict=True):
        assert one.fields().keys() == two.fields().keys()
        for name, value in two.fields().items():
            assert torch.equal(getattr(one, name), value), name


def test_windows_of_a_long_run_need_little_memory():
    """A few numbers for each, and not one for each of their frames."""
    T = 200_000
    x = np.broadcast_to(np.arange(4.0).reshape(1, 1, 2, 2), (1, T, 2, 2))
    t = Trajectories(x, x, np.arange(T), np.arange(float(T)))
    tracemalloc.start()
    windows = Windows(t, length=100, stride=1, target_steps=1)
    graph, _ = windows[[0, 7, -1]]
    some, _ = windows.sample(100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(windows) == T - 100
    assert graph.x.shape == (3, 100, 2, 2)
    assert len(some) == 100
    assert peak < 8 * 8 * T
