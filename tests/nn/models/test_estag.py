"""ESTAG: Fourier features over time, space and time in turn, equivariant pooling."""

import itertools

import pytest
import torch

from spacetime_en import InputError, build_model
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.models.estag import FourierFeatures, SpatialModule, TemporalModule
from tests.helpers import liven, masked, padded, particles, random_neighbours


def lively(graph, **settings):
    torch.manual_seed(0)
    model = liven(build_model("estag", like=graph, hidden=16, **settings).double())
    with torch.no_grad():  # as built it forecasts the last frame
        model.pool_x.normal_()
        model.pool_v.normal_()
    return model.eval()


@pytest.mark.parametrize("L", [5, 6])
def test_the_features_are_those_of_the_discrete_fourier_transform(L):
    graph = particles(L=L)
    fourier = FourierFeatures(L, 7).double()
    h = torch.randn(3, L, 4, 7, dtype=torch.float64)
    with torch.no_grad():
        c, a = fourier(h, graph.x, Neighbourhood.of(graph))
        f = torch.fft.rfft(graph.x - graph.x.mean(2, keepdim=True), dim=1) / L  # (B, F, N, n)
        w = fourier.w(h.mean(1))
    assert f.shape[1] == fourier.count == L // 2 + 1
    for b in range(3):
        for i in range(4):
            for k in range(fourier.count):
                own = f[b, k, i]
                assert torch.isclose(c[b, 0, i, k], w[b, i, k] * own.abs().square().sum())
                for j in range(4):
                    product = (own * f[b, k, j].conj()).sum().abs()
                    expected = w[b, i, k] * w[b, j, k] * product
                    assert torch.isclose(a[b, 0, i, j, k], expected, rtol=1e-4, atol=1e-6)


def test_the_spatial_module_is_its_equation():
    graph = particles()
    B, L, N, _ = graph.x.shape
    module = SpatialModule(6, 2).double()
    torch.nn.init.normal_(module.phi_x[2].weight)
    h = torch.randn(B, L, N, 6, dtype=torch.float64)
    a = torch.randn(B, L, N, N, 2, dtype=torch.float64)
    with torch.no_grad():
        new_h, new_x = module(h, graph.x, a, Neighbourhood.of(graph))
        for b, t, i in itertools.product(range(B), range(L), range(N)):
            message, place = torch.zeros(6, dtype=torch.float64), graph.x[b, t, i].clone()
            for j in set(range(N)) - {i}:
                x_ij = graph.x[b, t, i] - graph.x[b, t, j]
                numbers = torch.cat([x_ij.square().sum()[None], a[b, t, i, j]])
                m = module.phi_m(torch.cat([h[b, t, i], h[b, t, j], numbers]))
                message += m
                place += x_ij * module.phi_x(m) / (N - 1)
            feature = h[b, t, i] + module.phi_h(torch.cat([h[b, t, i], message]))
            assert torch.allclose(new_h[b, t, i], feature)
            assert torch.allclose(new_x[b, t, i], place)


def test_the_temporal_module_is_its_equation_and_knows_no_later_frame():
    module = TemporalModule(6).double()
    torch.nn.init.normal_(module.phi_x[2].weight)
    h = torch.randn(2, 4, 3, 6, dtype=torch.float64)
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    with torch.no_grad():
        new_h, new_x, alpha = module(h, x)
        q, k, v = module.qkv(h).chunk(3, dim=-1)
        for b in range(2):
            for i in range(3):
                for t in range(4):
                    logits = torch.stack([q[b, t, i] @ k[b, s, i] for s in range(t + 1)])
                    weights = (logits / 6**0.5).softmax(0)
                    assert torch.allclose(alpha[b, i, t, : t + 1], weights)
                    feature, place = h[b, t, i].clone(), x[b, t, i].clone()
                    for s in range(t + 1):
                        feature += weights[s] * v[b, s, i]
                        scale = module.phi_x(v[b, s, i])
                        place += weights[s] * scale * (x[b, t, i] - x[b, s, i])
                    assert torch.allclose(new_h[b, t, i], feature)
                    assert torch.allclose(new_x[b, t, i], place)


def test_as_built_it_forecasts_the_last_frame_and_every_parameter_learns():
    graph = particles(L=5)
    built = build_model("estag", like=graph, hidden=8).double()
    assert torch.allclose(built(graph).x, graph.x[:, -1:])
    assert torch.allclose(built(graph).v, graph.v[:, -1:])
    model = lively(graph)
    forecast = model(graph)
    (forecast.x.square().sum() + forecast.v.square().sum()).backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


def test_frames_that_are_missing_or_not_as_many_are_refused():
    model = build_model("estag", frames=5, hidden=8).double()
    with pytest.raises(InputError, match="tied to 5 frames"):
        model(particles(L=4))
    with pytest.raises(InputError, match="means over all nodes"):
        model(padded())
    with pytest.raises(InputError, match=r"observed: this model needs every node in all 5 frames"):
        model(masked()[:1])


def test_lists_that_change_and_boxes_are_refused():
    model = build_model("estag", frames=3, hidden=8).double()
    with pytest.raises(InputError, match="neighbours: ESTAG follows each edge over time"):
        model(particles(neighbours=random_neighbours(4, 2, 3, 3)))
    with pytest.raises(InputError, match="box: ESTAG looks at paths about the centroid"):
        model(particles(box=[4.0] * 3))
