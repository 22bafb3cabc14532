import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacetime_en import InputError
from spacetime_en.data import Trajectories, Windows, simulate
from spacetime_en.data.slots import assign_slots
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
    assert target.x[0, :, 0, 0].tolist() == [110]
    assert graph.times[0].tolist() == [0, 1, 2]
    assert graph.horizon.tolist() == target.times.tolist() == [[2.5]]


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
    """Metadata of windows come from runs and frames; windows are read, and not kept."""
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
    np.testing.assert_allclose(target.x[0, 0], t.x[2, 10], rtol=1e-6)
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
    assert torch.equal(noisy[0][1].x[0, 0], noisy[1][0].x[0, 1])  # targets are observed, too
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
        assert elsewhere.x.min() > 3e5  # in the model's frame of reference


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


# --- several targets ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["2..4", "2,3,4", (2, 3, 4), [2, 3, 4], range(2, 5)])
def test_a_path_is_several_targets(path):
    windows = Windows(counting(), length=3, stride=2, target_steps=path)
    assert windows.target_steps == (2, 3, 4)
    graph, target = windows[0]
    assert target.x[0, :, 0, 0].tolist() == [6, 7, 8]
    assert graph.horizon.tolist() == target.times.tolist() == [[1.0, 1.5, 2.0]]
    _, frames = windows.locate(np.array([0]))
    assert frames.tolist() == [[0, 2, 4, 6, 7, 8]]
    alone, _ = Windows(counting(), length=3, stride=2, target_steps=4)[0]
    assert torch.equal(alone.x, graph.x)


@pytest.mark.parametrize(
    "steps", ["4..2", "1,1", "", "a", "1..", (2, 1), (), "0..3", "1..10000000"]
)
def test_targets_that_are_none(steps):
    with pytest.raises(InputError, match="target_steps: expected"):
        Windows(counting(), length=3, stride=2, target_steps=steps)


# --- nodes that come and go -----------------------------------------------------------------------


@st.composite
def tracks(draw):
    """People who come and go, with gaps: trajectories, and a dict (run, person, frame) -> x."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    runs, frames = draw(st.integers(1, 3)), draw(st.integers(4, 12))
    people = [draw(st.integers(1, 6)) for _ in range(runs)]
    walks, slots = {}, []
    for run, count in enumerate(people):
        first = rng.integers(0, frames, count)
        last = np.minimum(first + rng.integers(0, frames, count), frames - 1)
        slots.append(assign_slots(first, last))
        for person in range(count):
            for frame in range(first[person], last[person] + 1):
                if frame in (first[person], last[person]) or rng.random() < 0.8:
                    walks[run, person, frame] = rng.standard_normal(2)
    N = 1 + max(int(s.max()) for s in slots)
    x, ids = np.full((runs, frames, N, 2), np.nan), np.full((runs, frames, N), -1)
    for (run, person, frame), place in walks.items():
        x[run, frame, slots[run][person]] = place
    for run, count in enumerate(people):
        for person in range(count):
            own = [f for r, p, f in walks if (r, p) == (run, person)]
            ids[run, min(own) : max(own) + 1, slots[run][person]] = person
    return Trajectories.from_arrays(x, ids=ids, observed=~np.isnan(x[..., 0])), walks


def windows_in_plain_loops(walks, runs, frames, length, ahead, rule, least):
    """Yield (run, first frame, people) of each window."""
    for run in range(runs):
        for first in range(frames - length - max(ahead) + 1):
            seen = [first + k for k in range(length)]
            aims = [seen[-1] + k for k in ahead]
            people = sorted({p for r, p, f in walks if r == run})
            there = [p for p in people if (run, p, seen[-1]) in walks]
            if rule == "all":
                there = [p for p in people if all((run, p, f) in walks for f in seen + aims)]
            aimed = any((run, p, f) in walks for p in there for f in aims)
            if len(there) >= least and aimed:
                yield run, first, there


@settings(deadline=None, max_examples=60)
@given(tracks(), st.integers(2, 3), st.sampled_from([(1,), (1, 2), (2,)]), st.data())
def test_windows_hold_the_people_who_are_there(made, length, ahead, data):
    t, walks = made
    rule, least = data.draw(st.sampled_from(["last", "all"])), data.draw(st.integers(1, 2))
    R, T = t.x.shape[:2]
    expected = [*windows_in_plain_loops(walks, R, T, length, ahead, rule, least)]
    options = dict(length=length, stride=1, target_steps=ahead, nodes=rule, min_nodes=least)
    if length + max(ahead) > T or not expected:
        with pytest.raises(InputError, match="windows: no"):
            Windows(t, **options)
        return
    windows = Windows(t, dtype=torch.float64, **options)
    assert windows.node_counts.tolist() == [len(people) for _, _, people in expected]
    graph, target = windows[:]
    ids = windows.ids_of(np.arange(len(windows)))
    assert graph.x.shape[2] == windows.node_counts.max()
    for b, (run, first, people) in enumerate(expected):
        assert sorted(ids[b][ids[b] >= 0].tolist()) == people
        assert (ids[b][len(people) :] == -1).all()
        for i, person in enumerate(ids[b]):
            for k, frame in enumerate(range(first, first + length)):
                place = walks.get((run, person, frame))
                assert graph.observed[b, k, i] == (place is not None)
                if place is not None:
                    np.testing.assert_allclose(graph.x[b, k, i].numpy() + windows.origin, place)
            for k, after in enumerate(ahead):
                place = walks.get((run, person, first + length - 1 + after))
                assert target.mask[b, k, i] == (place is not None)
                if place is not None:
                    np.testing.assert_allclose(target.x[b, k, i].numpy() + windows.origin, place)
                else:
                    assert not target.x[b, k, i].any()


@settings(deadline=None, max_examples=30)
@given(tracks())
def test_velocities_are_differences_inside_the_window_only(made):
    t, walks = made
    try:
        windows = Windows(t, 3, 1, 1, dtype=torch.float64)
    except InputError:
        return
    (graph, _), (runs, frames) = windows[:], windows.locate()
    ids = windows.ids_of(np.arange(len(windows)))
    for b, run in enumerate(runs):
        for i, person in enumerate(ids[b]):
            own = [f for f in frames[b, :3] if (run, person, f) in walks]
            for k, frame in enumerate(frames[b, :3]):
                want = np.zeros(2)
                if frame in own and len(own) > 1:
                    n = max(1, own.index(frame))
                    step = walks[run, person, own[n]] - walks[run, person, own[n - 1]]
                    want = step / (own[n] - own[n - 1])
                np.testing.assert_allclose(graph.v[b, k, i], want, atol=1e-12)


def passing(frames=30, people=40, stay=6, **fields):
    """People who pass one after another, a few at a time, walking straight."""
    first = np.arange(people) * frames // people
    last = np.minimum(first + stay - 1, frames - 1)
    slots = assign_slots(first, last)
    ids = np.full((1, frames, slots.max() + 1), -1)
    for person in range(people):
        ids[0, first[person] : last[person] + 1, slots[person]] = person
    x = np.stack([ids + 0.5, np.arange(frames)[None, :, None] + 0.0 * ids], axis=-1)
    return Trajectories.from_arrays(x, ids=ids, **fields)


def test_whoever_has_left_does_not_count_and_nobody_takes_their_place():
    windows = Windows(passing(), 3, 1, (1, 2, 3))
    graph, target = windows[:]
    ids = torch.from_numpy(windows.ids_of(np.arange(len(windows))))
    assert (
        graph.x[..., 0][graph.observed] == (ids[:, None] + 0.5).expand(-1, 3, -1)[graph.observed]
    ).all()
    mine = (ids[:, None] + 0.5).expand(-1, 3, -1)
    assert (target.x[..., 0][target.mask] == mine[target.mask]).all()
    assert 0.2 < target.mask.double().mean() < 0.9


def test_attributes_belong_to_the_person_in_the_slot():
    ids = passing().ids
    t = passing(frame_attributes={"charge": np.where(ids % 2, 1.0, -1.0), "age": 2.0 * ids})
    windows = Windows(t, 3, 1, 1)
    graph, _ = windows[:]
    people = torch.from_numpy(windows.ids_of(np.arange(len(windows))))
    age = torch.where(graph.observed, 2.0 * people[:, None], 0.0)
    assert torch.equal(graph.features[..., 1], age)
    sign = torch.where(people % 2 == 1, 1.0, -1.0)
    there = graph.edge_mask
    products = (sign[:, :, None] * sign[:, None, :])[:, None].expand_as(there)
    assert torch.equal(graph.edge_attr[..., 0][there], products[there])
    sparse, _ = Windows(t, 3, 1, 1, k=2)[:]
    j = sparse.neighbours[:, 0].clamp(min=0)
    there = sparse.edge_mask
    chosen = sign[:, :, None] * sign.gather(1, j.flatten(1)).view(j.shape)
    assert torch.equal(sparse.edge_attr[..., 0][there], chosen[:, None].expand_as(there)[there])


def test_a_window_in_a_box_follows_each_persons_path():
    straight = passing()
    wrapped = Trajectories.from_arrays(straight.x % 5, ids=straight.ids, box=[5.0, 5.0])
    inside, aim = Windows(wrapped, 3, 1, 2)[:]
    open_space, goal = Windows(straight, 3, 1, 2)[:]
    shift = inside.x[:, -1] - open_space.x[:, -1]
    for one, two, seen in ((inside, open_space, inside.observed), (aim, goal, aim.mask)):
        path = two.x + shift[:, None]
        torch.testing.assert_close(one.x[seen], path[seen])
    torch.testing.assert_close(inside.v, open_space.v, atol=1e-5, rtol=0)


def test_known_nodes_keep_their_places_where_they_are_missing():
    x = np.random.default_rng(0).standard_normal((2, 8, 4, 2))
    x[0, :5, 1] = np.nan
    t = Trajectories.from_arrays(x, attributes={"mass": np.arange(4.0)})
    windows = Windows(t, 3, 1, 1)
    graph, target = windows[:]
    assert graph.x.shape[2] == 4
    assert graph.observed[0].sum(1).tolist() == [3, 3, 3]  # node 1 comes later: padding
    assert graph.observed[3].sum(1).tolist() == [3, 3, 4]
    assert target.mask[2, 0].sum() == 3  # observed at the target, but not before
    assert windows.ids_of(np.array([0, 3])).tolist() == [[0, -1, 2, 3], [0, 1, 2, 3]]
    assert windows.node_counts[:4].tolist() == [3, 3, 3, 4]
    few = [windows[[i]] for i in range(len(windows))]
    assert all(torch.equal(one[0].x[0], graph.x[i]) for i, one in enumerate(few))


def test_noise_is_on_what_was_observed():
    t = passing()
    clean, noisy = Windows(t, 3, 1, (1, 2)), Windows(t, 3, 1, (1, 2), noise=0.5)
    (a, goal), (b, other) = clean[:], noisy[:]
    assert torch.equal(a.observed, b.observed)
    assert (a.x != b.x).any(-1)[a.observed].all()
    assert torch.equal(a.x[~a.observed], b.x[~b.observed])
    assert torch.equal(goal.x[~goal.mask], other.x[~goal.mask])
    assert (goal.x != other.x).any(-1)[goal.mask].all()


def test_a_crowd_over_time_costs_the_memory_of_those_who_are_there():
    t = passing(frames=1000, people=1000, stay=30)
    assert t.x.shape[2] <= 31
    graph, _ = Windows(t, 8, 1, 1)[[500]]
    assert graph.x.shape[2] == 30


def test_windows_asked_for_must_have_people():
    t = passing()
    with pytest.raises(InputError, match="windows: none of 27 windows has 50 nodes"):
        Windows(t, 3, 1, 1, min_nodes=50)
    gone = Trajectories.from_arrays(
        t.x, observed=t.observed & (np.arange(30) < 9)[:, None], ids=t.ids
    )
    assert len(Windows(gone, 3, 1, 1, starts=[(0, 2)])) == 1
    with pytest.raises(InputError, match="windows: not every one of 2"):
        Windows(gone, 3, 1, 1, starts=[(0, 2), (0, 20)])
