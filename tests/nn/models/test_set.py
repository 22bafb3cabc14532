import itertools
import os

import pytest
import torch

from spacetime_en import SET, InputError, SpacetimeGraph, build_model
from spacetime_en.nn.layers.attention import Window
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.state import Units
from tests import reference
from tests.helpers import SMALL, liven, masked, particles, random_neighbours


def small_set(**settings):
    torch.manual_seed(0)
    return liven(SET(**(SMALL | settings))).double().eval()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"causal": True},
        {"scaled": False},
        {"residual": False, "step": 0.3},
        {"equivariant": False},
        {"encodings": "W", "features": 5},
        {"encodings": "XY"},
        {"encodings": "Z"},
        {"adjacency": "flattened", "nodes": 4},
        {"adjacency": "flattened", "nodes": 4, "scaled": False, "causal": True},
        {"adjacency": "nodes", "nodes": 4, "blocks": 3},
        {"adjacency": "nodes", "nodes": 4, "scaled": False, "encodings": "Z"},
        {"adjacency": "edges", "scaled": False},
        {"adjacency": "edges", "causal": True, "encodings": "WXYZ"},
        {"adjacency": "matrices", "nodes": 4, "blocks": 3},
        {"adjacency": "matrices", "nodes": 4, "scaled": False, "causal": True, "encodings": "Z"},
    ],
    ids=str,
)
def test_set_is_algorithms_1_and_2(settings):
    model = small_set(**settings)
    graph = particles(B=2)
    if settings.get("features"):
        graph = graph.replace(features=torch.rand(2, 3, 4, settings["features"]).double())
    forecast = model(graph)
    for b in range(2):
        x, v = reference.set_forecast(
            model, graph.h[b], graph.x[b], graph.v[b], graph.edge_attr[b, 0]
        )
        torch.testing.assert_close(forecast.x[b, 0], x)
        torch.testing.assert_close(forecast.v[b, 0], v)


def test_wide_features_and_edges_are_algorithms_1_and_2_too():
    g = torch.Generator().manual_seed(3)
    plain = particles(B=1, n=2)
    graph = SpacetimeGraph(
        plain.x,
        plain.v,
        features=torch.rand(1, 3, 4, 5, generator=g),
        edge_attr=torch.rand(1, 4, 4, 3, generator=g),
    )
    model = small_set(features=5, edge_features=3)
    x, v = reference.set_forecast(model, graph.h[0], graph.x[0], graph.v[0], graph.edge_attr[0, 0])
    torch.testing.assert_close(model(graph).x[0, 0], x)
    torch.testing.assert_close(model(graph).v[0, 0], v)


def test_the_parameters_that_never_influence_the_forecast_of_the_papers_set():
    """Exactly these: named by their gradients, confirmed by replacing them with noise.

    The last block's features go nowhere: its final phi_h, its readout and its feature attention.
    Of f_A, the row that feeds the distance channel, which every block computes afresh. Of
    f_theta, the weight, because LN of one channel is 0.
    """
    torch.manual_seed(0)
    model = liven(build_model("set")).double().eval()
    graph = particles(B=4, L=4, N=4)
    forecast = model(graph)
    (forecast.x.square().sum() + forecast.v.square().sum()).backward()
    dead = {
        name: torch.ones_like(p, dtype=torch.bool) if p.grad is None else p.grad == 0
        for name, p in model.named_parameters()
    }
    dead = {name: mask for name, mask in dead.items() if mask.any()}

    last = "blocks.2.egnn"
    whole = [f"{last}.layers.1.phi_h.{k}.{w}" for k in (0, 2) for w in ("weight", "bias")]
    whole += [f"{last}.readout.weight", f"{last}.readout.bias"]
    whole += [f"blocks.2.temporal.features.{m}.weight" for m in "qkv"]
    assert sum(int(dead[name].sum()) for name in whole) == 49_540
    assert all(dead[name].all() for name in whole)
    assert dead["feed_forward.f_a.weight"].tolist() == [[False, False], [True, True]]
    assert dead["feed_forward.f_a.bias"].tolist() == [False, True]
    assert dead["feed_forward.f_theta.weight"].tolist() == [[True]]
    others = {"feed_forward.f_a.weight", "feed_forward.f_a.bias", "feed_forward.f_theta.weight"}
    assert set(dead) == set(whole) | others

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in dead:
                p[dead[name]] = torch.randn(int(dead[name].sum()), dtype=torch.float64)
    again = model(graph)
    assert torch.equal(again.x, forecast.x)
    assert torch.equal(again.v, forecast.v)


def test_with_spatial_attention_off_no_parameter_influences_the_forecast():
    model = small_set(spatial=False)
    forecast = model(particles())
    assert not forecast.x.requires_grad
    assert not forecast.v.requires_grad


@pytest.mark.parametrize(
    ("settings", "ordered"), [({}, False), ({"encodings": "W"}, True), ({"causal": True}, True)]
)
def test_the_forecast_is_a_function_of_the_set_of_frames(settings, ordered):
    """Shuffling frames changes nothing, unless W or causality tells their order."""
    model = small_set(**settings)
    graph = particles(L=5)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = graph._replace(x=graph.x[:, order], v=graph.v[:, order])
    change = (model(shuffled).x - model(graph).x).abs().max()
    assert change > 1e-4 if ordered else change < 1e-12


def states(model, graph):
    """The positions of all frames after the last block, (B, L, N, n)."""
    units = Units.of(graph, 1.0, 1.0, centred=True)
    state = units.normalize(graph)
    window = Window.of(state.x, graph.observed, model.config["causal"])
    for block in model.blocks:
        state, _ = block(state, model.feed_forward, Neighbourhood.of(graph), window)
    return state.x


@pytest.mark.parametrize("missing", [(), (0, 2)])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"adjacency": "edges", "encodings": "WXYZ"},
        {"adjacency": "matrices", "nodes": 4},
    ],
    ids=str,
)
def test_causal_frames_do_not_depend_on_later_ones(settings, missing):
    model = small_set(causal=True, **settings)
    seen = torch.ones(1, 5, dtype=torch.bool)
    seen[0, list(missing)] = False
    graph = particles(B=1, L=5, observed=seen[..., None])
    for t in range(5):
        if t in missing:
            continue
        x, v = (field.clone().requires_grad_() for field in (graph.x, graph.v))
        out = states(model, graph._replace(x=x, v=v))[:, t].square().sum()
        for gradient in torch.autograd.grad(out, [x, v]):
            assert (gradient[:, t + 1 :] == 0).all()
            reached = gradient[0].abs().amax((1, 2)) > 0
            assert reached[: t + 1].tolist() == seen[0, : t + 1].tolist()


def test_without_causal_frames_depend_on_later_ones():
    model = small_set()
    graph = particles(B=1, L=5)
    x = graph.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(states(model, graph._replace(x=x))[:, 0].sum(), x)
    assert (gradient[:, 1:].abs() > 0).any()


HARD = {
    "two nodes at one point": particles()._replace(x=particles().x[:, :, [0, 0, 1, 2]]),
    "all nodes at one point": particles()._replace(x=torch.zeros(3, 3, 4, 3).double()),
    "one node": particles(N=1),
    "one frame": particles(L=1),
    "one node, one frame, one dimension": particles(B=1, L=1, N=1, n=1),
    "all velocities zero": particles()._replace(v=torch.zeros(3, 3, 4, 3).double()),
    "an offset of 1e4": particles().translate(torch.tensor([1e4, -1e4, 1e4])),
    "an isolated node": particles(neighbours=torch.tensor([[1], [0], [0], [-1]])),
    "no neighbours at all": particles(neighbours=torch.full((4, 0), 0)),
    "missing nodes and frames": masked(),
    "a box smaller than the cloud": particles(box=[0.5, 0.5, 0.5]),
    "1,000 nodes with 20 neighbours each": particles(
        B=1, L=2, N=1000, neighbours=random_neighbours(1000, 20)
    ),
}


@pytest.mark.parametrize("preset", ["set", "egnn"])
@pytest.mark.parametrize("graph", HARD.values(), ids=HARD.keys())
def test_hard_numbers_give_finite_forecasts_and_gradients_in_float32(graph, preset):
    torch.manual_seed(0)
    graph = graph.to(dtype=torch.float32)
    model = liven(build_model(preset, **({"hidden": 32} if len(graph.x[0, 0]) > 99 else {})))
    x, v = (field.clone().requires_grad_() for field in (graph.x, graph.v))
    forecast = model(graph._replace(x=x, v=v))
    assert forecast.x.isfinite().all()
    assert forecast.v.isfinite().all()
    (forecast.x.square().mean() + forecast.v.square().mean()).backward()
    for tensor in (x, v, *model.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


def test_given_features_behind_a_mask_are_not_read():
    graph = masked()
    features = torch.rand(3, 5, 5, 2).double()
    clean = graph.replace(features=features)
    dirty = graph.replace(features=features.masked_fill(~graph.observed.unsqueeze(-1), torch.nan))
    model = small_set(features=2)
    torch.testing.assert_close(model(dirty).x, model(clean).x)


def test_dropout_acts_on_features_alone():
    """In one block features come too late to matter; in two they do."""
    graph = particles()
    torch.manual_seed(0)
    for blocks, same in ((1, True), (2, False)):
        model = small_set(blocks=blocks, dropout=0.5)
        calm = model(graph)
        wild = model.train()(graph)
        assert torch.equal(wild.x, calm.x) == same
        assert torch.equal(wild.v, calm.v) == same


def test_padded_nodes_are_forecast_as_zero():
    graph = masked()
    forecast = small_set()(graph)
    assert (forecast.x[:, 0][~graph.present] == 0).all()
    assert (forecast.v[:, 0][~graph.present] == 0).all()


def test_data_in_other_units_reach_the_network_the_same():
    """Measured in other units, with the scales to match, the forecast is the same motion."""
    length, time = 1.5e8, 3600.0
    plain = small_set()
    scaled = small_set(length_scale=length, time_scale=time)
    graph = particles(box=[5.0, 6.0, 7.0])
    other = graph._replace(x=graph.x * length, v=graph.v * length / time, box=graph.box * length)
    torch.testing.assert_close(scaled(other).x, plain(graph).x * length)
    torch.testing.assert_close(scaled(other).v, plain(graph).v * length / time)


def test_in_a_box_wrapped_and_unwrapped_paths_give_the_same_forecast():
    box = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64)
    graph = particles(B=1, L=6, box=box)
    x = graph.x[:, :1] + 0.3 * torch.arange(6.0)[:, None, None] * graph.v[:, :1]
    unwrapped = graph._replace(x=x)
    wrapped = graph._replace(x=x - torch.floor(x / box) * box)
    assert (wrapped.x.diff(dim=1).abs() > 1.5).any()  # somebody crosses a wall
    model = small_set()
    difference = (model(wrapped).x - model(unwrapped).x) / box
    torch.testing.assert_close(difference, difference.round())
    torch.testing.assert_close(model(wrapped).v, model(unwrapped).v)


def test_attention_maps_are_asked_for_apart():
    graph = particles()
    maps = small_set(adjacency="edges").attention(graph)
    assert len(maps) == 2
    assert maps[0].positions.shape == (3, 4, 3, 3)
    assert maps[1].edges.shape == (3, 16, 3, 3)
    assert all(kind is None for kind in small_set(temporal=False).attention(graph)[0])
    with pytest.raises(InputError, match="graph: its dtype"):
        small_set().attention(graph.to(torch.float32))


@pytest.mark.parametrize(
    ("settings", "graph", "message"),
    [
        ({"features": 2}, particles(), r"features: the model was built for 2 .* has 1;"),
        ({"edge_features": 0}, particles(), r"edge_attr: the model was built for 0 .* has 1;"),
        ({}, particles(dtype=torch.float32), r"graph: its dtype is torch.float32, .*torch.float64"),
        ({"equivariant": False}, particles(n=2), r"tied to n = 3 .* has 2; build it with dims=2"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(settings, graph, message):
    with pytest.raises(InputError, match=message):
        small_set(**settings)(graph)


@pytest.mark.parametrize("name", ["hidden", "layers", "blocks", "length_scale", "time_scale"])
def test_sizes_and_scales_must_be_positive(name):
    with pytest.raises(InputError, match=f"{name}: expected a positive .*number, found 0"):
        SET(**{name: 0})


def test_sizes_are_whole_numbers():
    with pytest.raises(InputError, match=r"hidden: expected a positive whole number, found 3.5"):
        SET(hidden=3.5)


def test_scales_bring_data_of_any_size_to_order_one():
    graph = particles(N=6, dtype=torch.float32)
    far = graph._replace(x=graph.x * 300, v=graph.v * 20)
    model = build_model("set", like=far, **far.scales())
    units = model.units(far)
    state = units.normalize(far)
    assert 0.3 < state.x.square().mean().sqrt() < 1
    assert 0.3 < state.v.square().mean().sqrt() < 1
    assert model(far).x.abs().max() < 10 * far.x.abs().max()


GRAPHS = {
    "complete": particles(B=2),
    "masked": masked(),
    "neighbours": particles(B=2, neighbours=random_neighbours(4, 2)),
    "box": particles(B=2, box=[4.0, 5.0, 6.0]),
}


CAUSAL = {"causal": True, "encodings": "W"}
SOON = [("masked", CAUSAL), ("neighbours", {})]  # the others wait: Dynamo takes seconds for each


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param(*case, marks=[] if case in SOON else [pytest.mark.slow])
        for case in itertools.product(GRAPHS, ({}, CAUSAL))
    ],
)
def test_compiles_as_one_graph(kind, settings):
    """Dynamo finds no graph break, whatever the kind of graph."""
    torch.compiler.reset()
    graph, model = GRAPHS[kind], small_set(**settings)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(graph).x, model(graph).x)


@pytest.mark.slow  # its C++ compiler takes half a minute; the graphs that it gets are tested above
@pytest.mark.skipif(
    os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="without vector instructions PyTorch writes C++ that does not compile",
)
def test_compiles_with_inductor():
    torch.compiler.reset()
    torch.manual_seed(0)
    model = SET(hidden=8, layers=1, blocks=1)
    compiled = torch.compile(model.eval(), fullgraph=True)
    graph = particles(dtype=torch.float32)
    torch.testing.assert_close(compiled(graph).x, model(graph).x)


@pytest.mark.slow
def test_the_papers_set_compiles_and_trains_with_inductor():
    torch.compiler.reset()
    torch.manual_seed(0)
    model = build_model("set", dropout=0.0)
    compiled = torch.compile(model, fullgraph=True)
    graph = particles(B=8, L=10, N=5, dtype=torch.float32)
    gradients = []
    for net in (model, compiled):
        model.zero_grad()
        forecast = net(graph)
        (forecast.x.square().mean() + forecast.v.square().mean()).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for eager, fused in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, eager, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_exports(graph):
    model = small_set()
    exported = torch.export.export(model, (graph,)).module()
    torch.testing.assert_close(exported(graph).x, model(graph).x)


def test_exports_once_for_any_batch_window_and_number_of_nodes():
    model = small_set()
    graph = particles()
    auto = torch.export.Dim.DYNAMIC
    # One entry for x, v, edge_attr (B, 1, N, N, e), times and horizon.
    nodes = {0: auto, 1: auto, 2: auto}
    shapes = [nodes, nodes, {0: auto, 2: auto, 3: auto}, {0: auto, 1: auto}, {0: auto}]
    exported = torch.export.export(model, (graph,), dynamic_shapes=(shapes,)).module()
    other = particles(B=2, L=7, N=6)
    torch.testing.assert_close(exported(other).x, model(other).x)
