import pytest
import torch

from spacetime_en import Forecast, build_model
from spacetime_en.testing import (
    assert_equivariant,
    assert_padding_invariant,
    assert_permutation_equivariant,
    assert_rotation_equivariant,
    assert_translation_equivariant,
    equivariance_errors,
)
from tests.helpers import particles

GRAPH = particles()


def last(graph):
    return Forecast(graph.x[:, -1:], graph.v[:, -1:])


def forgets_translations(graph):
    return Forecast(graph.x[:, -1:] * 0.9, graph.v[:, -1:])


def pushes_along_an_axis(graph):
    push = torch.tensor([0.0, 0.0, 0.1], dtype=graph.x.dtype)
    return Forecast(graph.x[:, -1:] + push, graph.v[:, -1:])


def handed(graph):
    """Keeps rotations, but not reflections."""
    return Forecast(
        graph.x[:, -1:], graph.v[:, -1:] + torch.linalg.cross(graph.v[:, -1:], graph.v[:, :1])
    )


def moves_the_first_node(graph):
    x = graph.x[:, -1:].clone()
    x[:, :, 0] += graph.v[:, -1:, 0]
    return Forecast(x, graph.v[:, -1:])


def looks_at_the_whole_batch(graph):
    return Forecast(graph.x[:, -1:] + graph.v[:, -1:].mean(), graph.v[:, -1:])


def moves_towards_the_centroid(graph):
    x = graph.x[:, -1:]
    return Forecast(0.9 * x + 0.1 * x.mean(2, keepdim=True), graph.v[:, -1:])


def test_any_callable_can_be_checked():
    assert_equivariant(last, GRAPH)
    assert_padding_invariant(build_model("last-frame"), GRAPH)
    assert max(equivariance_errors(last, GRAPH)) < 1e-12


def test_the_largest_translation_suits_the_unit_of_the_data():
    unit = 1e-9
    small = GRAPH.replace(x=unit * GRAPH.x, v=unit * GRAPH.v)
    assert_equivariant(moves_towards_the_centroid, small, max_translation=1e3 * unit)


@pytest.mark.parametrize(
    ("model", "check"),
    [
        (forgets_translations, assert_translation_equivariant),
        (pushes_along_an_axis, assert_rotation_equivariant),
        (handed, assert_rotation_equivariant),
        (moves_the_first_node, assert_permutation_equivariant),
    ],
)
def test_each_check_catches_its_own_breach(model, check):
    with pytest.raises(
        AssertionError, match=r"relative error .*, tolerance 1e-10 in torch.float64"
    ):
        check(model, GRAPH)
    with pytest.raises(AssertionError):
        assert_equivariant(model, GRAPH)
    others = {
        assert_translation_equivariant,
        assert_rotation_equivariant,
        assert_permutation_equivariant,
    } - {check}
    for other in others:
        other(model, GRAPH)


def test_leaks_between_graphs_are_caught():
    with pytest.raises(AssertionError, match="not padding invariant"):
        assert_padding_invariant(looks_at_the_whole_batch, GRAPH)


def test_a_forecast_of_nan_is_not_equivariant():
    def broken(graph):
        return Forecast(graph.x[:, -1:] * torch.nan, graph.v[:, -1:])

    with pytest.raises(AssertionError, match="relative error nan"):
        assert_equivariant(broken, GRAPH)


def test_nan_in_the_velocities_alone_is_noticed():
    def broken(graph):
        return Forecast(graph.x[:, -1:], graph.v[:, -1:] * torch.nan)

    with pytest.raises(AssertionError, match="relative error nan"):
        assert_equivariant(broken, GRAPH)


def test_checks_leave_mode_and_random_state_alone():
    model = build_model("set", hidden=8, blocks=1).double().train()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert_equivariant(model, GRAPH)
    assert_padding_invariant(model, GRAPH)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), before)
