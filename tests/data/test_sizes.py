from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en.data.sizes import POOL, of_like_size, share_of_padding


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=200), st.integers(1, 20))
def test_every_window_once_and_a_batch_is_of_one_stretch_of_sizes(counts, size):
    counts = np.array(counts)
    order = of_like_size(torch.randperm(len(counts)), counts, size, generator())
    assert sorted(order.tolist()) == list(range(len(counts)))
    if len(counts) <= POOL * size:  # one pool: the smaller batch, too, is cut from sorted windows
        batches = sorted((counts[b].min(), counts[b].max()) for b in order.split(size))
        assert all(high <= low for (_, high), (low, _) in pairwise(batches))


def test_batches_of_like_size_waste_little():
    counts = np.random.default_rng(0).geometric(0.1, 5_000)
    order = torch.randperm(5_000, generator=generator())
    for size in (32, 100):
        plain = share_of_padding(order, counts, size)
        sorted_ = share_of_padding(of_like_size(order, counts, size, generator()), counts, size)
        assert plain > 0.7
        assert sorted_ < 0.15


def test_batches_come_in_any_order():
    counts = np.arange(1, 1001)
    order = of_like_size(torch.arange(1000), counts, 10, generator())
    firsts = counts[order[::10]]
    assert abs(np.corrcoef(firsts, np.arange(100))[0, 1]) < 0.4


def test_the_share_of_padding_is_that_of_empty_places():
    assert share_of_padding(torch.tensor([0, 1, 2, 3]), np.array([1, 3, 2, 2]), 2) == pytest.approx(
        1 - 8 / 10
    )
