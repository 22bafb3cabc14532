"""The symmetries of every model: those it claims hold, and those it does not claim fail."""

import itertools

import pytest
import torch

from spacetime_en import SET, Symmetries, build_model
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.egcl import EGCL
from spacetime_en.nn.layers.etal import ETAL
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.state import Units
from spacetime_en.testing import assert_equivariant, equivariance_errors
from tests.helpers import (
    SMALL,
    assert_lively,
    liven,
    masked,
    particles,
    random_neighbours,
    train_a_little,
)

KINDS = {
    "complete": particles,
    "masked": masked,
    "neighbours": lambda **k: particles(neighbours=random_neighbours(4, 2), **k),
    "neighbours per frame": lambda **k: particles(neighbours=random_neighbours(4, 2, 3, 3), **k),
    "box": lambda n=3, **k: particles(n=n, box=[4.0, 5.0, 6.0, 7.0, 8.0][:n], **k),
}
EQUIVARIANT = {
    "set": ("set", SMALL),
    "set causal": ("set", SMALL | {"causal": True}),
    "set with W": ("set", SMALL | {"encodings": "W"}),
    "set unscaled": ("set", SMALL | {"scaled": False}),
    "set with edge attention": ("set", SMALL | {"adjacency": "edges"}),
    "set without time": ("set-no-temporal", SMALL),
    "set without space": ("set", SMALL | {"spatial": False}),
    "egnn": ("egnn", {"hidden": 16}),
    "set-flow": ("set-flow", {"hidden": 16}),
    "set-flow-ensemble": ("set-flow-ensemble", {"hidden": 16, "members": 4, "steps": 8}),
    "estag": ("estag", {"hidden": 16, "frames": 3}),
    "ridge-shared": ("ridge-shared", {"frames": 3}),
    "last-frame": ("last-frame", {}),
    "straight-line": ("straight-line", {}),
    "least-squares-line": ("least-squares-line", {}),
    "parabola": ("parabola", {}),
}
CASES = [
    (model, kind)
    for model, kind in itertools.product(EQUIVARIANT, KINDS)
    if (model, kind)
    not in {  # refused
        ("set with edge attention", "neighbours per frame"),
        ("estag", "neighbours per frame"),
        ("estag", "masked"),
        ("estag", "box"),
        ("ridge-shared", "masked"),
    }
]


def build(name, **settings):
    torch.manual_seed(0)
    preset, own = EQUIVARIANT[name]
    return liven(build_model(preset, **own, **settings)).double()


@pytest.mark.parametrize("name", [name for name, kind in CASES if kind == "box"])
def test_in_a_box_it_does_not_matter_in_which_image_a_node_is_stored(name):
    model, graph = build(name).eval(), KINDS["box"]()
    moved = graph.x.clone()
    moved[:, :, 1] += graph.box[:, None, 0]  # by a vector of the cell
    here, there = model(graph), model(graph.replace(x=moved))
    there.x[:, 1] -= graph.box[:, 0]
    torch.testing.assert_close(there.x, here.x, rtol=0, atol=1e-9)
    torch.testing.assert_close(there.v, here.v, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_equivariant_in_float64_to_1e_10_and_in_float32_to_1e_4(name, kind, n):
    model, graph = build(name), KINDS[kind](n=n)
    assert model.is_equivariant
    assert_lively(model, graph)
    for mode in (model.train(), model.eval()):
        assert_equivariant(mode, graph, tolerance=1e-10, max_translation=1e3)
        single = graph.to(dtype=torch.float32)
        assert_equivariant(mode.float(), single, tolerance=1e-4, max_translation=1e3)
        mode.double()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["complete", "masked", "neighbours"])
@pytest.mark.parametrize("name", ["set", "set causal", "set with edge attention", "egnn"])
def test_still_equivariant_after_training(name, kind, n):
    model, graph = build(name).train(), KINDS[kind](n=n)
    train_a_little(model, graph)
    assert_lively(model, graph)
    assert_equivariant(model, graph, tolerance=1e-10)
    assert_equivariant(model.eval(), graph, tolerance=1e-10)


def test_the_papers_set_is_equivariant_as_built():
    torch.manual_seed(0)
    graph = particles(B=2, L=10, N=5)
    assert_equivariant(build_model("set").double(), graph)
    assert_equivariant(liven(build_model("set")).double(), graph)


def holds(error):
    assert error < 1e-10 or error > 1e-7, f"neither holds nor clearly fails: {error}"
    return error < 1e-10


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("encodings", ["", "W", "X", "Y", "Z"])
@pytest.mark.parametrize("adjacency", [None, "flattened", "nodes", "edges"])
def test_symmetries_are_claimed_exactly_where_they_hold(adjacency, encodings, n):
    """For every combination of options, what the model says of itself is what is measured."""
    graph = particles(n=n)
    for spatial, temporal, equivariant, blocks in itertools.product(
        (True, False), (True, False), (True, False), (1, 2)
    ):
        torch.manual_seed(0)
        model = SET(
            hidden=8,
            layers=1,
            blocks=blocks,
            dims=n,
            nodes=4,
            adjacency=adjacency,
            encodings=encodings,
            spatial=spatial,
            temporal=temporal,
            equivariant=equivariant,
        )
        model = liven(model).double().eval()
        measured = Symmetries(*map(holds, equivariance_errors(model, graph, max_translation=10)))
        assert model.symmetries == measured, model.config
        assert model.is_equivariant == all(measured)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("preset", ["set-nonequivariant", "set-adjacency", "lstm", "mlp", "linear"])
def test_the_other_presets_fail_exactly_the_checks_they_do_not_claim(preset, n):
    torch.manual_seed(0)
    graph = particles(n=n)
    model = liven(build_model(preset, like=graph)).double().eval()
    measured = Symmetries(*map(holds, equivariance_errors(model, graph, max_translation=10)))
    assert model.symmetries == measured
    assert not model.is_equivariant
    with pytest.raises(AssertionError, match=r"the forecast is not .* equivariant: relative error"):
        assert_equivariant(model, graph)


def test_edges_that_lead_nowhere_break_nothing():
    """Without edge attributes, Z has nothing to add to."""
    graph = particles()
    graph = type(graph)(graph.x, graph.v)
    model = liven(SET(edge_features=0, encodings="Z", **SMALL)).double().eval()
    assert model.symmetries.permutation
    assert_equivariant(model, graph)


# --- each layer alone --------------------------------------------------------------------------


def relative(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_egcl_and_etal_are_equivariant_layers(n, kind, dtype):
    torch.manual_seed(0)
    graph = KINDS[kind](n=n).to(dtype)
    egcl, etal = EGCL(6, 2).to(dtype), ETAL(6, n, True, True, 0.5).to(dtype)
    torch.nn.init.normal_(egcl.phi_x[-1].weight)
    torch.nn.init.constant_(egcl.phi_v[-1].bias, 0.8)
    B, L, N, _ = graph.x.shape
    mask = graph.edge_mask
    h = torch.randn(B, L, N, 6, dtype=dtype)
    a = torch.randn(B, L, N, mask.shape[-1], 2, dtype=dtype)
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]
    q = (q * (-torch.linalg.det(q)).sign()).to(dtype)  # for odd n a reflection
    b = 10 * torch.randn(n, dtype=dtype)
    p = torch.randperm(N)
    seen = torch.ones(B, L, N) > 0 if graph.observed is None else graph.observed

    def layers(g, h, a):
        state = Units(1.0, 1.0, None).normalize(g)
        spatial = egcl(h, state.x, state.v, a, Neighbourhood.of(g, g.box))
        window = Window.of(state.x, g.frame_mask, causal=False)
        temporal = etal(h, state.x, state.v, window)[:3]
        return spatial, temporal

    moved_a = a[:, :, p] if graph.neighbours is not None else a[:, :, p][:, :, :, p]
    here = layers(graph, h, a)
    there = layers(graph.rotate(q).translate(b).permute(p), h[:, :, p], moved_a)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for (h0, x0, v0), (h1, x1, v1) in zip(here, there, strict=True):
        assert v0[seen].abs().max() > 0.1
        for found, expected in ((h1, h0), (x1, x0 @ q.T + b), (v1, v0 @ q.T)):
            assert relative(found[seen[:, :, p]], expected[:, :, p][seen[:, :, p]]) < tolerance
