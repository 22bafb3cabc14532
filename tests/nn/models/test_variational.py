"""Laws that are derivatives: in inference mode, in training, and where they cannot go."""

import pytest
import torch

from spacetime_en import InputError, SpacetimeGraph, build_model
from tests.helpers import liven, particles

PRESETS = ("hnn", "lnn")


def learned(preset):
    torch.manual_seed(0)
    return liven(build_model(preset, hidden=8, steps=1, step_fraction=None)).double().eval()


@pytest.mark.parametrize("preset", PRESETS)
def test_forces_are_derivatives_also_where_nothing_is_differentiated(preset):
    model, graph = learned(preset), particles()
    wanted = model(graph)
    assert wanted.x.requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = model(particles())
        assert not found.x.requires_grad
        torch.testing.assert_close(found.x, wanted.x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", PRESETS)
def test_they_cannot_be_exported_and_say_so(preset):
    with pytest.raises(InputError, match=r"model: its forces are derivatives .* set-flow can"):
        torch.export.export(learned(preset), (particles(),), strict=False)


def test_positions_alone_of_one_frame_have_no_velocities():
    with pytest.raises(InputError, match="velocities from differences need at least two observed"):
        SpacetimeGraph.from_positions(torch.randn(1, 1, 4, 3))


@pytest.mark.parametrize("setting", [{"layers": 0}, {"hidden": 0}, {"steps": 0}])
def test_bad_settings_are_named(setting):
    for preset in PRESETS:
        with pytest.raises(InputError, match=next(iter(setting))):
            build_model(preset, **setting)
