import torch

from spacetime_en.nn.layers.feedforward import FeedForward, layer_norm
from spacetime_en.nn.state import State
from tests import reference

G = torch.Generator().manual_seed(0)


def state(d=4):
    h, x, v = (torch.randn(2, 3, 4, c, generator=G, dtype=torch.float64) for c in (d, 3, 3))
    return State(h, x, v, torch.randn(2, 3, 4, 4, 2, generator=G, dtype=torch.float64))


def test_layer_norm_is_appendix_d_and_torch():
    h = state().h
    torch.testing.assert_close(layer_norm(h), torch.nn.functional.layer_norm(h, (4,)))
    torch.testing.assert_close(layer_norm(h)[0, 0, 0], reference.layer_norm(h[0, 0, 0]))


def test_layer_norm_of_one_channel_is_exactly_zero():
    assert (layer_norm(1e3 * state(d=1).h.float()) == 0).all()


def test_features_and_edges_are_updated_and_vectors_are_left_alone():
    before = state()
    f = FeedForward(4, 2, 3, equivariant=True).double()
    after = f(before)
    expected = f.f_theta(reference.layer_norm(before.h[0, 0, 0])) + before.h[0, 0, 0]
    torch.testing.assert_close(after.h[0, 0, 0], expected)
    expected = f.f_a(reference.layer_norm(before.a[0, 0, 0, 1])) + before.a[0, 0, 0, 1]
    torch.testing.assert_close(after.a[0, 0, 0, 1], expected)
    assert after.x is before.x
    assert after.v is before.v


def test_the_ablation_gives_vectors_a_linear_of_their_own():
    before = state()
    f = FeedForward(4, 2, 3, equivariant=False).double()
    x = before.x[0, 0, 0]
    torch.testing.assert_close(f(before).x[0, 0, 0], f.f_x(reference.layer_norm(x)) + x)


def test_the_norm_over_all_edges_takes_each_channel_as_one_vector():
    before = state()
    f = FeedForward(4, 2, 3, equivariant=True, norm_over_all_edges=True).double()
    a = before.a[0, 0]
    normed = torch.stack([reference.layer_norm(a[..., c].flatten()) for c in range(2)], dim=-1)
    expected = f.f_a(normed.view(4, 4, 2)) + a
    torch.testing.assert_close(f(before).a[0, 0], expected)
