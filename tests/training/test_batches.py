import functools
import operator

import numpy as np
import pytest
import torch

from spacetime_en.data import Trajectories, Windows
from spacetime_en.training.batches import Batches, derive_seed


def rows(batches):
    return [batch.rows.tolist() for batch in batches]


def test_an_epoch_holds_every_window_once_in_an_order_of_its_own(tiny_task):
    train = tiny_task.train
    epochs = [rows(Batches(train, 7, seed=3, start=6 * e, stop=6 * (e + 1))) for e in (0, 1)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [7] * 5 + [5]
        assert sorted(functools.reduce(operator.iadd, epoch, [])) == list(range(40))
    assert epochs[0] != epochs[1]
    assert rows(Batches(train, 7, seed=4, stop=6)) != epochs[0]
    assert functools.reduce(operator.iadd, rows(Batches(train, 7)), []) == list(range(40))


def test_any_stretch_is_what_it_is_in_the_whole(tiny_task):
    whole = rows(Batches(tiny_task.train, 7, seed=0, stop=20))
    for start in (0, 1, 5, 6, 13):
        assert rows(Batches(tiny_task.train, 7, seed=0, start=start, stop=20)) == whole[start:]


def test_batches_hold_the_windows_of_their_rows(tiny_task):
    (batch, *_) = Batches(tiny_task.train, 7, seed=0)
    for place, row in enumerate(batch.rows.tolist()):
        graph, target = tiny_task.train[row]
        assert torch.equal(batch.graph.x[place], graph.x[0])
        assert torch.equal(batch.target.v[place], target.v[0])


def test_processes_share_a_batch_and_their_weighted_sums_average_to_its_mean(tiny_task):
    values = torch.rand(40, dtype=torch.float64)
    for world in (2, 3, 6):
        parts = [Batches(tiny_task.train, 7, seed=0, rank=r, world=world) for r in range(world)]
        for whole, *shares in zip(Batches(tiny_task.train, 7, seed=0), *parts, strict=True):
            held = [r for share in shares if share.weight for r in share.rows.tolist()]
            assert sorted(held) == sorted(whole.rows.tolist())
            mean = sum(values[s.rows].sum() * s.weight for s in shares) / world
            torch.testing.assert_close(mean, values[whole.rows].mean())


def test_a_process_without_windows_takes_part_and_counts_for_nothing(tiny_task):
    part = [*Batches(tiny_task.train, 13, seed=0, rank=3, world=4)]
    assert [len(batch.rows) for batch in part] == [3, 3, 3, 1]
    assert part[-1].weight == 0  # the last batch has one window


def test_mixed_seeds_differ():
    seeds = {derive_seed(a, b) for a in range(30) for b in range(30)}
    assert len(seeds) == 900
    assert derive_seed(1, 2) != derive_seed(2, 1)
    assert all(0 <= seed < 2**63 for seed in seeds)


# --- windows of different sizes -------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    """Windows with one to twelve people."""
    frames = np.arange(200)[:, None]
    ids = np.where((frames // 8 * 5) % 12 >= np.arange(12), frames // 20 * 12 + np.arange(12), -1)
    x = np.random.default_rng(0).standard_normal((200, 12, 2)).cumsum(0)
    return Windows(Trajectories.from_arrays(x, ids=ids), length=3, stride=1, target_steps=(1, 2))


def test_a_batch_holds_windows_of_like_size(crowd):
    assert crowd.node_counts.min() == 1
    assert crowd.node_counts.max() == 12
    batches = [*Batches(crowd, 8, seed=0)]
    spans = [np.ptp(crowd.node_counts[batch.rows]) for batch in batches]
    assert max(spans) <= 4
    assert sorted(r for batch in batches for r in batch.rows.tolist()) == [*range(len(crowd))]
    for batch in batches:
        assert batch.graph.x.shape[2] == crowd.node_counts[batch.rows].max()
    assert crowd.padding(8) < 0.1
    assert rows(Batches(crowd, 8, seed=1)) != rows(batches)


def test_batches_of_like_size_are_the_same_from_any_step_and_for_any_processes(crowd):
    whole = rows(Batches(crowd, 8, seed=0, stop=60))
    for start in (0, 7, 31):
        assert rows(Batches(crowd, 8, seed=0, start=start, stop=60)) == whole[start:]
    parts = [rows(Batches(crowd, 8, seed=0, stop=60, rank=r, world=3)) for r in range(3)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert all(set(share) <= set(batch) for share in shares)


def test_validation_goes_by_size(crowd):
    order = [r for batch in rows(Batches(crowd, 8)) for r in batch]
    assert sorted(order) == [*range(len(crowd))]
    assert (np.diff(crowd.node_counts[order]) >= 0).all()
