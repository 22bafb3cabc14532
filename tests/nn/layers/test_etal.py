import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en.nn.layers.attention import QKVAttention, Window
from spacetime_en.nn.layers.etal import ETAL, position_attention, velocity_attention
from tests import reference

OPTIONS = [(scaled, causal) for scaled in (True, False) for causal in (True, False)]


def series(B=2, N=3, L=5, c=3, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(B, N, L, c, generator=g, dtype=torch.float64).to(dtype)


def window(t, causal, observed=None):
    return Window.of(t.transpose(1, 2), observed, causal)


def scale(c, scaled):
    return c**-0.5 if scaled else 1.0


@pytest.mark.parametrize("with_weights", [True, False])
@pytest.mark.parametrize(("scaled", "causal"), OPTIONS)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_positions_follow_equations_7_and_8(n, scaled, causal, with_weights):
    x = series(c=n)
    found, beta = position_attention(x, window(x, causal), scale(n, scaled), 0.5, with_weights)
    for b in range(2):
        for i in range(3):
            expected = reference.position_attention(x[b, i], 0.5, scaled, causal)
            torch.testing.assert_close(found[b, i], expected)
    assert (beta is not None) == with_weights


@pytest.mark.parametrize("with_weights", [True, False])
@pytest.mark.parametrize(("scaled", "causal"), OPTIONS)
@pytest.mark.parametrize("n", [1, 3])
def test_velocities_follow_equations_9_and_10(n, scaled, causal, with_weights):
    v = series(c=n)
    found, _ = velocity_attention(v, window(v, causal).visible, scale(n, scaled), with_weights)
    for b in range(2):
        for i in range(3):
            torch.testing.assert_close(
                found[b, i], reference.velocity_attention(v[b, i], scaled, causal)
            )


@pytest.mark.parametrize("with_weights", [True, False])
@pytest.mark.parametrize(("scaled", "causal"), OPTIONS)
@pytest.mark.parametrize("d", [1, 4])
def test_features_follow_equations_5_and_6(d, scaled, causal, with_weights):
    torch.manual_seed(0)
    attention = QKVAttention(d, scaled).double()
    h = series(c=d)
    found, _ = attention(h, window(h, causal).visible, with_weights)
    weights = (attention.q.weight, attention.k.weight, attention.v.weight)
    for b in range(2):
        for i in range(3):
            expected = reference.qkv_attention(*weights, h[b, i], scaled, causal)
            torch.testing.assert_close(found[b, i], expected)


@given(st.integers(0, 1000), st.booleans())
def test_attention_maps_are_distributions_over_time(seed, causal):
    torch.manual_seed(seed)
    etal = ETAL(features=2, dims=3, equivariant=True, scaled=True, step=0.5).double()
    h, x, v = (series(c=c, seed=seed).transpose(1, 2) for c in (2, 3, 3))
    *_, maps = etal(h, x, v, Window.of(x, None, causal), with_weights=True)
    for weights in (maps.features, maps.positions, maps.velocities):
        assert weights.shape == (2, 3, 5, 5)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
        assert (weights >= 0).all()
        if causal:
            assert (weights.triu(1) == 0).all()
    assert maps.edges is None


def test_the_farthest_frame_gets_the_largest_weight():
    """The sign of Eq. 8 is positive."""
    x = torch.tensor([0.0, 1.0, 3.0]).double()[None, None, :, None]
    _, beta = position_attention(x, Window(), 1.0, 0.5, with_weights=True)
    assert beta[0, 0, 0].argmax() == 2
    assert beta[0, 0, 2].argmax() == 0


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_positions_far_from_the_origin_keep_their_digits_in_float32(offset):
    x = (series(dtype=torch.float32) + offset) - offset  # what float32 can hold out there
    near, _ = position_attention(x, Window(), 3**-0.5, 0.5, with_weights=False)
    far, _ = position_attention(x + offset, Window(), 3**-0.5, 0.5, with_weights=False)
    torch.testing.assert_close(far - offset, near, atol=2e-3 if offset else 1e-6, rtol=0)
    exact, _ = position_attention(x.double(), Window(), 3**-0.5, 0.5, with_weights=False)
    torch.testing.assert_close(near.double(), exact, atol=1e-5, rtol=0)


def test_a_missing_first_frame_costs_no_digits_in_float32():
    """Missing frames hold 0, far from a cloud of this spread: they must not be the reference."""
    x = series(dtype=torch.float32) + 1e3
    front = torch.cat([torch.zeros_like(x[:, :, :1]), x], dim=2)
    observed = torch.tensor([False, True, True, True, True, True])[None, :, None].expand(2, 6, 3)
    found, _ = position_attention(front, window(front, False, observed), 1.0, 0.5, False)
    exact, _ = position_attention(x.double(), Window(), 1.0, 0.5, False)
    torch.testing.assert_close(found[:, :, 1:].double(), exact, atol=2e-4, rtol=0)


@pytest.mark.parametrize("equivariant", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_a_node_attends_over_its_own_observed_frames(causal, equivariant):
    """As if its window had never held the others: those frames cut out by hand."""
    torch.manual_seed(0)
    etal = ETAL(features=2, dims=3, equivariant=equivariant, scaled=True, step=0.5).double()
    observed = torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(2)) < 0.6  # (B, L, N)
    observed[0, :, 2] = False
    h, x, v = (series(c=c).transpose(1, 2) for c in (2, 3, 3))
    found = etal(h, x, v, Window.of(x, observed, causal))[:3]
    for b in range(2):
        for i in range(3):
            seen = observed[b, :, i]
            alone = [t[b : b + 1, seen, i : i + 1] for t in (h, x, v)]
            if seen.any():
                expected = etal(*alone, Window.of(alone[1], None, causal))[:3]
                for have, want in zip(found, expected, strict=True):
                    torch.testing.assert_close(have[b, seen, i], want[0, :, 0])
    assert all(t.isfinite().all() for t in found)


def test_the_nonequivariant_ablation_attends_with_learned_matrices():
    torch.manual_seed(0)
    etal = ETAL(features=1, dims=3, equivariant=False, scaled=True, step=0.5).double()
    h, x, v = (series(c=c).transpose(1, 2) for c in (1, 3, 3))
    _, found, _, _ = etal(h, x, v, Window())
    w = etal.positions
    for b in range(2):
        for i in range(3):
            expected = reference.qkv_attention(w.q.weight, w.k.weight, w.v.weight, x[b, :, i])
            torch.testing.assert_close(found[b, :, i], expected)
