"""Attention over time, against the softmax written out."""

import math

import pytest
import torch

from spacetime_en.nn.layers.attention import QKVAttention, Window, attend, logit_scale

OBSERVED = torch.tensor(  # of two graphs with three nodes each, (B, N, L)
    [[[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]], [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]]
).bool().transpose(1, 2)  # fmt: skip


def random_series(count):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 2, 3, 4, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("observed", [None, OBSERVED], ids=["all", "masked"])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_a_softmax_over_the_visible_frames(observed, causal):
    q, k, v = random_series(3)
    window = Window.of(torch.empty(2, 4), observed, causal)
    mixed, weights = attend(q, k, v, window.visible, 0.5, with_weights=True)
    fused, none = attend(q, k, v, window.visible, 0.5, with_weights=False)
    assert none is None
    assert torch.allclose(fused, mixed)
    for b in range(2):
        for i in range(3):
            there = [s for s in range(4) if observed is None or observed[b, s, i]]
            for t in range(4):
                seen = [
                    s
                    for s in range(4)
                    if (s in there or not there or (causal and s == t)) and (not causal or s <= t)
                ]
                powers = {s: math.exp(0.5 * float(q[b, i, t] @ k[b, i, s])) for s in seen}
                expected = [powers.get(s, 0.0) / sum(powers.values()) for s in range(4)]
                assert weights[b, i, t].tolist() == pytest.approx(expected)


def test_frames_are_those_in_which_anybody_was():
    window = Window.of(torch.empty(2, 4), OBSERVED, causal=False)
    assert window.frames.tolist() == [[True] * 4, [True] * 4]
    alone = Window.of(torch.empty(2, 4), OBSERVED[..., 1:2], causal=False)
    assert alone.frames.tolist() == [[True, False, True, True], [True, False, False, True]]
    assert Window.of(torch.empty(2, 4), None, causal=True).frames is None


def test_the_scale_is_that_of_the_appendix_or_of_the_main_text():
    assert logit_scale(16, scaled=True) == 0.25
    assert logit_scale(16, scaled=False) == 1.0


def test_there_is_no_bias():
    layer = QKVAttention(5, scaled=True).double()
    out, _ = layer(torch.zeros(1, 1, 4, 5, dtype=torch.float64), None, False)
    assert not out.any()
