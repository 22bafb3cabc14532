"""The symmetries of SET with all of its options, and of its layers.

Those of all presets as they are built are in `tests/nn/test_contract.py`.
"""

import itertools

import pytest
import torch

from spacetime_en import PRESETS, SET, Symmetries, build_model
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.egcl import EGCL
from spacetime_en.nn.layers.etal import ETAL
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.presets import Preset
from spacetime_en.nn.state import Units
from spacetime_en.testing import assert_equivariant, equivariance_errors
from tests.helpers import SMALL, liven, particles
from tests.nn.contract import KINDS, check_images, check_padding, check_symmetries

OPTIONS = {
    "causal": {"causal": True},
    "with W": {"encodings": "W"},
    "unscaled": {"scaled": False},
    "with edge attention": {"adjacency": "edges"},
    "without space": {"spatial": False},
    "with tfn": {"spatial": "tfn"},
    "with se3-transformer": {"spatial": "se3-transformer"},
}


@pytest.mark.parametrize("check", [check_symmetries, check_images, check_padding])
@pytest.mark.parametrize(
    "option",
    [pytest.param(o, marks=[pytest.mark.slow] if "se3" in o else []) for o in OPTIONS],
)
def test_options_of_set_keep_the_contract(option, check, monkeypatch):
    monkeypatch.setitem(PRESETS, option, Preset(SET, OPTIONS[option]))
    check(option)


def test_the_papers_set_is_equivariant_as_built():
    torch.manual_seed(0)
    graph = particles(B=2, L=10, N=5)
    assert_equivariant(build_model("set").double(), graph)
    assert_equivariant(liven(build_model("set")).double(), graph)


def holds(error):
    assert error < 1e-10 or error > 1e-7, f"neither holds nor clearly fails: {error}"
    return error < 1e-10


ADJACENCIES = (None, "flattened", "nodes", "edges", "matrices")
# Attention on edges knows nothing of the dimensions: on a line, it waits for `make test-all`.
SOON = [*((how, 3) for how in ADJACENCIES), (None, 1)]
LATER = [pytest.param(how, 1, marks=pytest.mark.slow) for how in ADJACENCIES[1:]]


@pytest.mark.parametrize(("adjacency", "n"), SOON + LATER)
@pytest.mark.parametrize("encodings", ["", "W", "X", "Y", "Z"])
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
        window = Window.of(state.x, g.observed, causal=False)
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
