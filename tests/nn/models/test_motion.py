"""How laws of motion are learned: the curriculum, the window, robust errors."""

import pytest
import torch

from spacetime_en import Forecast, collate
from spacetime_en.nn.models.motion import Curriculum
from tests.helpers import masked, particles
from tests.nn.samples import far_apart, flow

ADAPTIVE = Curriculum().equal_steps_until


def test_what_is_behind_masks_does_not_reach_the_loss():
    graph = masked()
    model = flow()
    target = model(graph)
    unknown = target.replace(x=target.x.masked_fill(~target.mask[..., None], torch.nan))
    for used in (0.0, 1.0):
        model.set_progress(used)
        for truth in (target, unknown):
            losses = model.losses(graph, truth, 1.0)
            assert losses.isfinite().all()


def test_the_window_teaches_where_all_nodes_were_in_its_first_and_last_frame():
    """Padded or not, whole windows have the loss that they have alone; others have none."""
    model = flow(law=False)
    model.set_progress(0.0)  # the window is all it looks at
    graph = particles(L=3)
    target = Forecast(*torch.zeros(2, 3, 1, 4, 3, dtype=torch.float64))
    alone = model.losses(graph, target, 1.0)
    seen = torch.ones(3, 4, 6, dtype=torch.bool)
    seen[:, 0, 2] = False
    partly = particles(L=4, N=6, observed=seen)
    zeros = Forecast(*torch.zeros(2, 3, 1, 6, 3, dtype=torch.float64))
    together = model.losses(*collate([(graph, target), (partly, zeros)]), 1.0)
    torch.testing.assert_close(together[:3], alone)
    assert not together[3:].any()


def test_nothing_to_explain_is_no_error():
    graph = particles(L=1)
    still = graph.replace(v=torch.zeros_like(graph.v))
    model = flow(law=False)
    for used in (0.0, 0.5, 1.0):
        model.set_progress(used)
        at_rest = Forecast(still.x, still.v)
        assert model.losses(still, at_rest, 1.0).isfinite().all()


def test_the_curriculum_goes_from_smooth_to_sharp():
    graph = particles(horizon=2.0)
    model = flow()
    found = []
    for used in (0.0, ADAPTIVE, 1.0):
        model.set_progress(used)
        found.append(model(graph).x)
    assert (found[0] - found[1]).abs().max() > 1e-3
    assert (found[1] - found[2]).abs().max() > 1e-3
    torch.testing.assert_close(found[2], flow()(graph).x)  # as built and as loaded: at the end


@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
def test_the_loss_is_0_for_the_truth_and_grows_with_the_error(L, used):
    graph = far_apart(L=L, horizon=1.0)
    model = flow(step_fraction=0.05)
    model.set_progress(used)
    if L > 1:  # let the last frame be what the flow makes of the first
        span = (graph.times[:, -1] - graph.times[:, 0]).to(graph.x)
        first = graph.frame(torch.zeros(3, dtype=torch.long), span[:, None])
        graph.x[:, -1], graph.v[:, -1] = model(first).last
    truth = model(graph)
    none = model.losses(graph, truth, alpha=1.0)
    one = torch.tensor([1.0, 0, 0], dtype=torch.float64)[:, None, None, None]  # of three windows
    some, more = (
        model.losses(graph, Forecast(truth.x + d * one, truth.v), 1.0) for d in (0.1, 0.3)
    )
    scale = 1e-2 if used < ADAPTIVE else 1e-6
    assert (none < scale).all()
    if L == 1 or used >= ADAPTIVE:  # before that, the window is all it looks at
        assert none[0] < some[0] < more[0]


def at_the_end(B):
    """A model in the last stage of its training, graphs of one frame, and its forecasts."""
    graph = particles(B=B, L=1, horizon=2.0)
    model = flow(law=False)
    model.set_progress(1.0)
    with torch.no_grad():
        return model, graph, model(graph)


def test_where_nothing_can_be_predicted_a_fifth_of_the_windows_still_counts():
    model, graph, truth = at_the_end(B=10)
    off = torch.arange(1.0, 11.0, dtype=torch.float64)[:, None, None, None]
    losses = model.losses(graph, Forecast(truth.x + 1e3 * off, truth.v), 1.0)
    assert (losses <= 0.5).sum() == 2
    assert losses[2:].min() > 0.5
    assert losses.max() < 0.98


def test_outliers_do_not_decide_the_direction_of_a_step():
    model, graph, truth = at_the_end(B=8)
    far = Forecast(truth.x + 0.1 * torch.randn_like(truth.x), truth.v)
    far.x[0] *= 1e3

    def gradient(windows):
        model.zero_grad()
        model.losses(graph, far, 1.0)[windows].sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    others = gradient(slice(1, 8))
    assert others.norm() > 0
    assert (gradient(slice(8)) - others).norm() < 1e-3 * others.norm()


@pytest.mark.parametrize("step_fraction", [None, 0.3])
def test_other_times_in_a_batch_do_not_change_a_forecast(step_fraction):
    """The steps of a leg are as many as its own share of the way asks for, whoever is beside."""
    times = torch.tensor([[0.5, 1.0, 1.5], [0.1, 0.2, 1.5]], dtype=torch.float64)
    graph = particles(B=2, L=1).replace(horizon=times)
    model = flow(law=False, step_fraction=step_fraction)
    together = model(graph)
    for b in range(2):
        alone = model(graph[[b]])
        torch.testing.assert_close(together[[b]].x, alone.x, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together[[b]].v, alone.v, rtol=1e-12, atol=1e-12)
