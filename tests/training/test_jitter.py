import pytest
import torch

from spacetime_en import SpacetimeGraph, build_model
from spacetime_en.data import Task, Trajectories
from spacetime_en.data.differences import velocities
from spacetime_en.training import TrainingSettings, fit, module
from spacetime_en.training.jitter import jittered, typical_step

TIMES = torch.tensor([0.0, 1.0, 1.5, 3.5, 4.0], dtype=torch.float64)
OBSERVED = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 1]]).bool().T[None]


def graph(observed=None, windows=1):
    x = torch.randn(windows, 5, 3, 2, dtype=torch.float64)
    if observed is not None:
        x = x.masked_fill(~observed[..., None], 0.0)
        observed = observed.expand(windows, -1, -1)
    v = velocities(x.numpy(), TIMES.numpy(), None, None if observed is None else observed.numpy())
    times = TIMES.expand(windows, -1)
    return SpacetimeGraph(x, torch.from_numpy(v), times=times, observed=observed)


@pytest.mark.parametrize("observed", [None, OBSERVED])
def test_velocities_are_still_differences_of_positions(observed):
    there = graph(observed)
    seen = jittered(there, 0.3)
    mask = None if observed is None else observed.numpy()
    again = torch.from_numpy(velocities(seen.x.numpy(), TIMES.numpy(), None, mask))
    first = torch.ones(1, 5, 3) > 0 if observed is None else observed.clone()
    first = first & (first.cumsum(1) == 1)  # whose velocity comes from before the window
    assert torch.allclose(seen.v[~first], again[~first], rtol=0, atol=1e-12)
    assert not (seen.v == there.v)[first].any()
    if observed is not None:
        assert torch.equal(seen.x[~observed], there.x[~observed])
        assert torch.equal(seen.v[~observed], there.v[~observed])


@pytest.mark.parametrize("observed", [None, OBSERVED])
def test_speeds_among_the_features_change_with_the_velocities(observed):
    there = graph(observed)
    mass = torch.rand(1, 5, 3, 1, dtype=torch.float64)
    there = there.replace(features=torch.cat([there.h, mass], dim=-1))
    seen = jittered(there, 0.3)
    assert torch.equal(seen.features[..., :1], seen._replace(features=None).h)
    assert not torch.equal(seen.features[..., :1], there.features[..., :1])
    assert torch.equal(seen.features[..., 1:], there.features[..., 1:])


def test_errors_are_independent_and_of_a_size_for_each_window():
    there = graph(windows=4000)
    e = jittered(there, 0.3).x - there.x
    size = e.square().mean((1, 2, 3)).sqrt()
    assert size.max() < 0.3 * 1.6
    assert 0.1 < (size < 0.3 / 1000).double().mean() + 0.05 < 0.2  # u < 1/10
    assert 0.45 < (size < 0.3 / 8).double().mean() < 0.55  # u < 1/2
    alike = (e[:, 0] * e[:, 1]).mean() / e.square().mean()
    assert alike.abs() < 0.05


def test_the_typical_step_is_from_one_observation_to_the_next():
    x = torch.zeros(1, 5, 3, 2)
    x[0, :, 0, 0] = torch.arange(5.0)  # four steps of 1
    x[0, :, 1, 1] = 3 * torch.arange(5.0)  # two steps, of 6 and 3
    x[0, -1, 2, 0] = 7  # one of 7
    x = x.masked_fill(~OBSERVED[..., None], 0.0)
    step = typical_step(SpacetimeGraph(x, torch.zeros_like(x), observed=OBSERVED))
    assert step == pytest.approx(((4 * 1 + 36 + 9 + 49) / 7) ** 0.5)
    assert typical_step(SpacetimeGraph(x[:, -1:], x[:, -1:])) == 0.0


@pytest.mark.parametrize("measured", [True, False])
def test_only_data_without_velocities_of_their_own_are_jittered(measured, monkeypatch):
    sizes = []
    monkeypatch.setattr(module, "jittered", lambda graph, most: (sizes.append(most), graph)[1])
    torch.manual_seed(0)
    x = torch.randn(12, 8, 3, 2).cumsum(1).numpy()
    data = Trajectories.from_arrays(x, x if measured else None, times=range(8))
    task = Task.from_trajectories(data, length=4, target_steps=1)
    model = build_model("set-2", like=task.train[:1][0], hidden=8, layers=1)
    fit(model, task, TrainingSettings(steps=2, batch_size=8, jitter=0.5), display=False)
    assert len(sizes) == (0 if measured else 2)
    if not measured:
        assert sizes[0] == pytest.approx(0.5 * typical_step(task.train[:][0]))
