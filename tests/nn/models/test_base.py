"""The simple forecasts that networks correct, and networks that correct them."""

import pytest
import torch

from spacetime_en import Forecast, InputError, StraightLine, build_model, fit
from spacetime_en.nn.models.base import NAMES, Base
from spacetime_en.nn.models.ridge import SharedRidge
from spacetime_en.nn.presets import PRESETS, Preset
from spacetime_en.nn.rollout import with_times
from tests.helpers import particles
from tests.nn import contract

NETWORKS = ("set", "set-nonequivariant", "egnn", "mlp", "lstm", "estag")
CHECKS = (
    contract.check_symmetries,
    contract.check_images,
    contract.check_padding,
    contract.check_saving,
    contract.check_export,
    contract.check_refusals,
)


def base(name, frames=3, targets=1):
    return Base(name, frames, edge_features=1, targets=targets, nodes=None).double()


def example(name="straight-line", seed=0, times=(1.0,)):
    """Windows whose targets are the forecasts of a base."""
    graph = with_times(particles(B=20, seed=seed), list(times))
    return graph, PRESETS[name].model().forecast(graph)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_base_is_the_forecast_of_its_name_and_auto_finds_it(name):
    graph, target = example(name, seed=2)
    assert torch.equal(base(name)(graph).x, target.x)
    auto = base("auto")
    auto.calibrate(example(name, seed=0), example(name, seed=1))
    # (To ridge, nothing is left to add to the straight line.)
    assert auto.chosen == name
    loaded = base("auto")
    loaded.load_state_dict(auto.state_dict())
    assert loaded.chosen == name
    assert torch.equal(loaded(graph).v, target.v)


def springs(seed, times):
    """Windows whose targets depend on neighbours, which ridge alone reads, at the square of t."""
    graph = with_times(particles(B=60, seed=seed), times)
    line, t = StraightLine().forecast(graph), graph.horizon[..., None, None]
    pull = (graph.x[:, -1:].mean(2, keepdim=True) - graph.x[:, -1:]) / 2
    return graph, Forecast(line.x + t.square() * pull, line.v + 2 * t * pull)


def test_ridge_is_chosen_where_it_is_best_and_reads_the_time():
    auto = base("auto", targets=2)
    auto.calibrate(springs(0, [1.0, 2.0]), springs(1, [1.0, 2.0]))
    assert auto.chosen == "ridge"
    for times in ([1.0, 2.0], [0.5, 1.7, 3.0]):  # also times that it was not fitted for
        graph, target = springs(2, times)
        torch.testing.assert_close(auto(graph).x, target.x, rtol=0, atol=1e-5)
        torch.testing.assert_close(auto(graph).v, target.v, rtol=0, atol=1e-5)
    alone = SharedRidge(3, 1, 2).double()
    alone.solve([springs(0, [1.0, 2.0])], [springs(1, [1.0, 2.0])])
    graph, _ = springs(2, [1.0, 2.0])
    torch.testing.assert_close(auto(graph).x, alone.forecast(graph).x, rtol=0, atol=1e-12)


def test_windows_of_another_length_are_refused_by_ridge_alone():
    auto = base("auto")
    auto.calibrate(springs(0, [1.0]), springs(1, [1.0]))
    with pytest.raises(InputError, match=r"ridge, has weights for 3 frames, .* 5; .*straight-line"):
        auto(particles(L=5))
    auto.calibrate(example(seed=0), example(seed=1))
    assert auto(particles(L=5)).x.isfinite().all()


def test_where_ridge_has_too_many_weights_there_are_other_bases():
    with pytest.raises(InputError, match="use ridge-shared"):
        Base("ridge", 10, edge_features=1, targets=1, nodes=900)
    auto = Base("auto", 10, edge_features=1, targets=1, nodes=900).double()
    auto.calibrate(example("parabola", seed=0), example("parabola", seed=1))
    assert auto.chosen == "parabola"


def test_where_nothing_can_be_compared_the_base_is_the_straight_line():
    graph, target = example()
    unknown = Forecast(*(torch.full_like(t, torch.nan) for t in (target.x, target.v)))
    auto = base("auto")
    auto.calibrate((graph, target), (graph, unknown))
    assert auto.chosen == "straight-line"


def test_a_file_cannot_name_a_base_that_the_model_has_not():
    state = base("parabola").state_dict()
    for number in (NAMES.index("ridge"), len(NAMES), -1):
        with pytest.raises(InputError, match=f"base: the file of the model names base {number}"):
            base("parabola").load_state_dict(state | {"number": torch.tensor(number)})


@pytest.mark.parametrize("preset", NETWORKS)
def test_before_training_a_network_forecasts_what_its_base_does(preset):
    graph, target = example("parabola", times=(2.0,))
    model = build_model(preset, like=graph, hidden=8, base="parabola").double().eval()
    assert (model.base_name, model.corrects_base) == ("parabola", True)
    found = model(graph)
    assert torch.equal(found.x, target.x)
    assert torch.equal(found.v, target.v)
    with torch.no_grad():
        model.gain.fill_(0.5)
    own, found, last = model.alone(graph), model(graph), graph.x[:, -1:]
    torch.testing.assert_close(found.x, target.x + (own.x - last) / 2)
    torch.testing.assert_close(found.v, target.v + own.v / 2)


@pytest.mark.parametrize("preset", NETWORKS)
def test_without_a_base_nothing_changes(preset):
    graph = particles(dtype=torch.float32)
    torch.manual_seed(0)
    alone = build_model(preset, like=graph, hidden=8).eval()
    torch.manual_seed(0)
    correcting = build_model(preset, like=graph, hidden=8, base="auto").eval()
    assert not alone.corrects_base
    assert not alone.calibrates
    of_the_base = {name for name in correcting.state_dict() if name.startswith(("base.", "gain"))}
    assert set(correcting.state_dict()) - of_the_base == set(alone.state_dict())
    assert torch.equal(alone(graph).x, correcting.alone(graph).x)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("preset", ["set", "egnn", "mlp", "lstm", "estag"])
def test_networks_that_correct_ridge_keep_the_contract(monkeypatch, preset, check):
    monkeypatch.setitem(PRESETS, preset, Preset(PRESETS[preset].model, {"base": "ridge"}))
    check(preset)


@pytest.mark.parametrize("name", ["parabola", "least-squares-line"])
@pytest.mark.parametrize("preset", ["set", "egnn", "mlp", "lstm", "estag"])
def test_paths_are_corrected_step_by_step(monkeypatch, preset, name):
    monkeypatch.setitem(PRESETS, preset, Preset(PRESETS[preset].model, {"base": name}))
    contract.check_paths(preset)


def test_with_several_target_times_the_base_learns_the_first():
    model, once = (build_model("egnn", hidden=8, base="auto", frames=3).double() for _ in range(2))
    model.calibrate(springs(0, [1.0, 2.0]), springs(1, [1.0, 2.0]))
    once.calibrate(springs(0, [1.0]), springs(1, [1.0]))
    assert model.base_name == once.base_name == "ridge"
    graph, target = springs(2, [1.0])
    assert torch.equal(model(graph).x, once(graph).x)
    torch.testing.assert_close(model(graph).x, target.x, rtol=0, atol=1e-5)
    late = springs(0, [2.0, 3.0])
    with pytest.raises(InputError, match="learns the step from the first one"):
        model.calibrate(late, late)


def test_what_is_learned_is_better_than_the_base(tiny_task):
    graph, _ = tiny_task.train[:1]
    torch.manual_seed(0)
    model = build_model("egnn", like=graph, hidden=8, base="last-frame")
    progress = fit(model, tiny_task, lr=1e-2, batch_size=16, steps=60, display=False)
    assert progress.best_step > 0
    assert model.gain != 0
