"""Random rotations and reflections of windows in training."""

import pytest
import torch

from spacetime_en import StraightLine, build_model, fit
from spacetime_en.graph import Forecast
from spacetime_en.nn.rollout import with_times
from spacetime_en.training import TrainingSettings, module
from spacetime_en.training.augmentation import augmented
from tests.helpers import masked, particles

BOX = torch.diag(torch.tensor([4.0, 5.0, 6.0], dtype=torch.float64))


def windows():
    """Windows of everything that has a direction, and targets with holes and samples."""
    directed = {"up": [0.0, 0.6, 0.8], "box": BOX.expand(6, 3, 3)}
    graph = with_times(particles(B=6, **directed), [1, 3])
    x, v = torch.randn(2, 6, 2, 4, 3, dtype=torch.float64)
    mask = torch.rand(6, 2, 4) < 0.7
    samples = torch.randn(6, 5, 2, 4, 3, dtype=torch.float64)
    return graph, Forecast(x, v, graph.horizon, mask, samples=samples)


def test_each_window_is_turned_by_an_element_of_the_group_and_its_target_with_it():
    torch.manual_seed(0)
    graph, target = windows()
    turned, aimed = augmented(graph, target)
    # Q of each window, from the box, which is not singular: cell Q^T = turned cell.
    q = torch.linalg.solve(graph.box, turned.box).mT
    eye = torch.eye(3, dtype=torch.float64).expand(6, 3, 3)
    torch.testing.assert_close(q @ q.mT, eye)
    for b in range(6):  # as the action of the group does it, one window at a time
        here, there = graph[[b]].rotate(q[b]), target[[b]].rotate(q[b])
        for name in ("x", "v", "up"):
            torch.testing.assert_close(getattr(turned[[b]], name), getattr(here, name))
        for name in ("x", "v", "samples"):
            torch.testing.assert_close(getattr(aimed[[b]], name), getattr(there, name))
    assert (q[0] - q[1]).abs().max() > 0.1  # each by its own


def test_what_has_no_direction_stays_to_the_bit():
    graph, target = windows()
    turned, aimed = augmented(graph, target)
    for name in ("times", "horizon", "edge_attr"):
        assert torch.equal(getattr(turned, name), getattr(graph, name))
    assert turned.features is None
    assert torch.equal(aimed.mask, target.mask)
    assert torch.equal(aimed.times, target.times)
    holes = masked()
    turned, _ = augmented(holes, StraightLine()(holes))
    assert torch.equal(turned.observed, holes.observed)
    assert torch.equal(turned.x.isnan(), holes.x.isnan())


def test_turns_are_uniform_and_half_of_them_reflections():
    torch.manual_seed(0)
    graph = particles(B=1, L=1, N=3).replace(x=torch.eye(3, dtype=torch.float64)[None, None])
    many = graph[[0] * 4000]
    turned, _ = augmented(many, StraightLine()(many))
    q = turned.x[:, 0].mT
    assert 0.46 < (torch.linalg.det(q) > 0).double().mean() < 0.54
    assert q.mean(0).abs().max() < 0.05
    assert (q.square().mean(0) - 1 / 3).abs().max() < 0.03


def test_every_step_is_turned_the_same_way_whenever_it_is_done(tiny_task, monkeypatch):
    """They depend on the seed and the step: a resumed run continues bit for bit."""
    seen = []
    monkeypatch.setattr(
        module, "augmented", lambda *pair: (seen.append(augmented(*pair)), seen[-1])[1]
    )
    settings = TrainingSettings(steps=4, batch_size=8, augment=True, save_every=0.0)

    def trained(state=None):
        torch.manual_seed(0)
        states = []
        model = build_model("transformer", like=tiny_task.train[:1][0], hidden=8, layers=1)
        kept = {"save": lambda state, is_best: states.append(state), "display": False}
        fit(model, tiny_task, settings, state=state, **kept)
        return states

    straight = trained()
    halfway = next(state for state in straight if state.progress.step == 2)
    first = [graph.x for graph, _ in seen]
    seen.clear()
    resumed = trained(halfway)
    assert len(first) == 4
    assert all(torch.equal(a, graph.x) for a, (graph, _) in zip(first[2:], seen, strict=True))
    for name, weight in straight[-1].weights.items():
        assert torch.equal(weight, resumed[-1].weights[name])


@pytest.mark.parametrize(("augment", "turned"), [(True, 1), (False, 0)])
def test_only_where_it_is_asked_for(augment, turned, tiny_task, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "augmented", lambda *pair: (calls.append(1), pair)[1])
    model = build_model("mlp", like=tiny_task.train[:1][0], hidden=8, layers=1)
    settings = TrainingSettings(steps=1, batch_size=8, augment=augment)
    fit(model, tiny_task, settings, display=False)
    assert len(calls) == turned


def test_an_equivariant_model_learns_the_same_from_turned_windows():
    graph = particles(B=8)
    target = StraightLine()(graph)
    target = target._replace(x=target.x + 0.1 * torch.randn_like(target.x))
    torch.manual_seed(0)
    model = build_model("egnn", like=graph, hidden=8).double()
    turned = augmented(graph, target)
    torch.testing.assert_close(model.losses(*turned, 1.0), model.losses(graph, target, 1.0))
