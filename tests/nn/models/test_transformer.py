"""The plain transformer: what its layers compute, and its inputs from windows."""

import pytest
import torch

from spacetime_en import Forecast, InputError, StraightLine, build_model
from spacetime_en.nn.layers.virtual_points import HEADS
from spacetime_en.nn.models.transformer import AttentionLayer
from spacetime_en.nn.rollout import with_times
from tests.helpers import masked, particles, random_neighbours, train_a_little
from tests.nn import contract


def test_a_layer_is_its_equation():
    torch.manual_seed(0)
    layer = AttentionLayer(8).double()
    h, context = torch.randn(2, 3, 8).double(), torch.randn(2, 5, 8).double()
    bias, values = torch.randn(2, HEADS, 3, 5).double(), torch.randn(2, 3, 5, 8).double()
    with torch.no_grad():
        found = layer(h, context, bias, values)
        zero = torch.zeros_like(values)
        assert torch.allclose(layer(h, context, bias), layer(h, context, bias, zero))
        for b in range(2):
            for i in range(3):
                q = layer.query(layer.norm(h[b, i])).view(HEADS, -1)
                k, v = layer.key_value(layer.norm(context[b])).chunk(2, dim=-1)
                heads = []
                for m in range(HEADS):
                    part = slice(2 * m, 2 * m + 2)
                    logits = k[:, part] @ q[m] / 2**0.5 + bias[b, m, i]
                    heads.append(logits.softmax(0) @ (v + values[b, i])[:, part])
                new = h[b, i] + layer.out(torch.cat(heads))
                new = new + layer.feedforward(new)
                torch.testing.assert_close(found[b, i], new)


@pytest.mark.parametrize("kind", ["complete", "holes", "padded", "up"])
def test_it_takes_gaps_padding_and_up(kind):
    graph = contract.KINDS[kind]()
    sizes = contract.SIZES | {"base": "straight-line"}
    model = contract.build("transformer", graph, sizes)
    assert not contract.is_refused(model, graph)
    assert not contract.is_refused(model, with_times(graph, contract.PATH))


def test_it_forecasts_its_base_before_training_and_then_every_weight_learns():
    graph = particles(dtype=torch.float32)
    model = build_model("transformer", like=graph, hidden=16, base="straight-line")
    line = StraightLine()(graph)
    assert torch.equal(model(graph).x, line.x)
    train_a_little(model, graph)
    assert not torch.allclose(model(graph).x, line.x)
    model.zero_grad()
    model.losses(graph, Forecast(line.x + 1, line.v + 1), 1.0).sum().backward()
    silent = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert all(name.startswith("base.") for name in silent)


def test_it_reads_the_true_times_of_frames():
    graph = particles(L=4)
    model = contract.build("transformer", graph, contract.SIZES | {"base": "last-frame"})
    times = torch.tensor([0.0, 0.3, 2.5, 3.0], dtype=torch.float64)
    later = graph.replace(times=graph.times + 7.0)
    torch.testing.assert_close(model(later).x, model(graph).x)
    assert (model(graph.replace(times=times)).x - model(graph).x).abs().max() > 1e-4


def test_it_reads_charges_and_where_the_others_are():
    graph = particles()
    model = contract.build("transformer", graph, contract.SIZES | {"base": "last-frame"})
    others = graph.replace(edge_attr=-graph.edge_attr)
    assert (model(others).x - model(graph).x).abs().max() > 1e-4
    x = graph.x.clone()
    x[:, :, 1] += torch.tensor([1.0, 0.0, 0.0])
    x[:, :, 2] -= torch.tensor([1.0, 0.0, 0.0])  # the centroid stays
    moved = model(graph.replace(x=x)).x - model(graph).x
    assert moved[:, :, 0].abs().max() > 1e-4


def test_up_turns_what_it_forecasts():
    graph = contract.KINDS["up"]()
    model = contract.build("transformer", graph, contract.SIZES | {"base": "last-frame"})
    other = graph.replace(up=torch.tensor([0.0, 0.0, 1.0]))
    assert (model(other).x - model(graph).x).abs().max() > 1e-4
    with pytest.raises(InputError, match="up: this model was built for data with an up direction"):
        model(particles())


def test_boxes_lists_and_odd_widths_are_refused():
    model = build_model("transformer", frames=3, hidden=8).double()
    with pytest.raises(InputError, match="box: the transformer reads positions about the centroid"):
        model(particles(box=[4.0] * 3))
    with pytest.raises(InputError, match="neighbours: the transformer needs a complete graph"):
        model(particles(neighbours=random_neighbours(4, 2)))
    with pytest.raises(InputError, match="hidden: expected a multiple of 4, found 6"):
        build_model("transformer", hidden=6)


def test_nothing_is_measured_where_nothing_was_observed():
    graph = masked()
    target = StraightLine()(graph)
    target = target._replace(x=target.x + 0.1)
    model = build_model("transformer", like=graph, hidden=8, base="straight-line").double()
    model.calibrate((graph, target), (graph, target))
    for name, buffer in model.named_buffers():
        assert buffer.isfinite().all(), name
    assert (model.size > 0).all()
