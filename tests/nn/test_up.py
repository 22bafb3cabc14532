"""A direction of space: models that read it are equivariant if it rotates along."""

import math

import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph, build_model, collate
from spacetime_en.testing import rotation_error
from tests.helpers import SMALL, liven, particles

MODELS = {"set": SMALL, "egnn": {"hidden": 16, "layers": 2}}
UP = [0.0, 2.0, 0.0]  # any length


def built(preset, **settings):
    torch.manual_seed(0)
    model = liven(build_model(preset, up=True, **MODELS[preset] | settings).double()).eval()
    with torch.no_grad():  # as built it hardly matters, like phi_x
        for name, p in model.named_parameters():
            if name.endswith("phi_u.2.weight"):
                p.mul_(1000)
    return model


def about_up(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]], dtype=torch.float64)


@pytest.mark.parametrize("preset", MODELS)
def test_with_the_direction_fixed_only_rotations_about_it_commute(preset):
    model, graph = built(preset), particles(up=UP)

    def fixed(g):
        return model(g.replace(up=UP))

    q = about_up(0.7)
    turned, expected = fixed(graph.rotate(q)), fixed(graph).rotate(q)
    assert torch.allclose(turned.x, expected.x, atol=1e-10)
    assert torch.allclose(turned.v, expected.v, atol=1e-10)
    assert rotation_error(fixed, graph) > 1e-2  # which is what the direction is for


@pytest.mark.parametrize("preset", MODELS)
def test_the_forecast_depends_on_the_direction(preset):
    model = built(preset)
    one, other = (model(particles(up=up)).x for up in (UP, [1.0, 0.0, 0.0]))
    assert not torch.allclose(one, other, atol=1e-3)


def test_a_layer_adds_phi_u_times_the_direction():
    """v_i <- phi_v(h_i) v_i + C sum ... + phi_u(h_i) u."""
    model = built("egnn", layers=1)
    (layer,) = model.egnn.layers
    graph = particles(up=UP)
    with torch.no_grad():
        here = model(graph)
        u = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
        rise, height = graph.v @ u, (graph.x - graph.x[:, :1].mean(2, keepdim=True)) @ u
        h = torch.cat([graph.h, height.unsqueeze(-1), rise.unsqueeze(-1)], dim=-1)
        lift = (layer.phi_u(model.egnn.embed(h)) * u).mean(1, keepdim=True)  # over time
        layer.phi_u[2].weight.zero_()
        without = model(graph)
    assert lift.abs().max() > 1e-2
    assert torch.allclose(here.v, without.v + lift, atol=1e-12)
    assert torch.allclose(here.x, without.x + lift, atol=1e-12)


def test_models_without_it_do_not_read_it_and_have_the_papers_parameters():
    graph = particles()
    model = build_model("set", **SMALL).double().eval()
    assert torch.equal(model(graph).x, model(graph.replace(up=UP)).x)
    with torch.device("meta"):
        assert sum(p.numel() for p in build_model("set").parameters()) == 796_058


@pytest.mark.parametrize("preset", MODELS)
def test_a_graph_without_a_direction_is_refused(preset):
    with pytest.raises(InputError, match="up: this model was built for data with an up direction"):
        built(preset)(particles())


@pytest.mark.parametrize(
    ("up", "sentence"),
    [
        ([0.0, 0.0, 0.0], "up: expected a direction, found zero"),
        ([0.0, 1.0], r"up: expected shape \(3,\) or \(3, 3\), found \(2,\)"),
        ([0.0, float("nan"), 1.0], "up: expected a direction, found zero, NaN"),
    ],
)
def test_what_is_no_direction_is_refused(up, sentence):
    with pytest.raises(InputError, match=sentence):
        particles(up=up)


def test_heights_in_a_periodic_box_are_refused():
    with pytest.raises(InputError, match="box: heights have no meaning in a periodic box"):
        built("egnn")(particles(up=UP, box=[4.0] * 3))


def test_it_has_length_one_in_every_graph_and_batches_agree_on_having_one():
    graph = particles(up=UP)
    assert graph.up.tolist() == [[0.0, 1.0, 0.0]] * 3
    assert collate([graph, particles(N=3, up=[0.0, 0.0, -3.0])]).up.shape == (6, 3)
    with pytest.raises(InputError, match="up direction"):
        collate([graph, particles()])
    assert isinstance(graph[1], SpacetimeGraph)
    assert graph[1].up.shape == (1, 3)
