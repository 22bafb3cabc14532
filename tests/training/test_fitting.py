"""Training, in one process and without files."""

import copy
import dataclasses
import itertools
import math
import os
import re
import signal
import types
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from spacetime_en import Forecast, InputError, SpacetimeGraph, StraightLine, build_model
from spacetime_en._util.errors import Interrupted
from spacetime_en._util.signals import STOP_SIGNALS
from spacetime_en.data import Trajectories, load_task
from spacetime_en.data.task import Task
from spacetime_en.nn.models.base import Base
from spacetime_en.training import (
    DivergenceError,
    TrainingProgress,
    TrainingSettings,
    TrainingState,
    display,
    fit,
)
from spacetime_en.training.batches import Batches, derive_seed

SIZE = {"hidden": 8, "layers": 1, "blocks": 2}
SETTINGS = TrainingSettings(lr=1e-2, batch_size=16, steps=7, validate_every=3)


def small(task, preset="set", seed=0, **settings):
    torch.manual_seed(seed)
    graph, _ = task.train[:1]
    size = SIZE if preset.startswith("set") else {}
    return build_model(preset, like=graph, **(size | settings))


class States(list):
    """Keeps every state that a training hands out."""

    def __call__(self, state: TrainingState, best: bool) -> None:
        self.append((state, best))


def weights(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_equal_to_a_plain_loop(tiny_task):
    """Loss (Eq. 13), clipping, Adam, order of windows, dropout, schedule: all spelled out."""
    settings = dataclasses.replace(
        SETTINGS, alpha=0.5, clip=0.3, schedule="cosine", warmup=0.3, weight_decay=1e-2
    )
    expected = small(tiny_task)
    optimiser = torch.optim.Adam(expected.parameters(), lr=1.0, weight_decay=1e-2)
    for step, batch in enumerate(Batches(tiny_task.train, 16, seed=0, stop=7)):
        used = step / 7
        rise = used / 0.3 if used < 0.3 else 0.5 * (1 + math.cos(math.pi * (used - 0.3) / 0.7))
        optimiser.param_groups[0]["lr"] = 1e-2 * rise
        torch.manual_seed(derive_seed(0, step, 0))
        forecast = expected(batch.graph)
        loss = torch.zeros(())
        for b in range(len(batch.graph)):
            x = (forecast.x[b] - batch.target.x[b]).square().mean()
            v = (forecast.v[b] - batch.target.v[b]).square().mean()
            loss = loss + (x + 0.5 * v) / len(batch.graph)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.3)
        optimiser.step()
    found = States()
    fit(small(tiny_task), tiny_task, settings, save=found, display=False)
    last = found[-1][0].weights
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(last[name], tensor, rtol=1e-4, atol=1e-6)


def test_the_loss_is_counted_in_the_models_units(tiny_task):
    """Data in other units, with the scales that go with them, train the same model."""

    def in_units(length, time):
        t = tiny_task.train.trajectories
        scaled = Trajectories.from_arrays(
            length * t.x[:],
            length / time * t.v[:],
            times=time * t.times,
            steps=t.steps,
            attributes={"charge": t.charge[:]},
        )
        task = Task.from_trajectories(scaled, length=3, stride=1, target_steps=10)
        model = small(task, length_scale=float(length), time_scale=float(time), dropout=0.0)
        fit(model, task, SETTINGS, display=False)
        return weights(model)

    one, other = in_units(1, 1), in_units(1000, 7)
    assert not same(one, weights(small(tiny_task)))
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=2e-3, atol=1e-4)


def test_interrupted_anywhere_and_resumed_gives_the_same_bits(tiny_task):
    settings = dataclasses.replace(SETTINGS, ema=0.8, schedule="cosine", save_every=0.0)
    kept = States()
    whole = small(tiny_task)
    fit(whole, tiny_task, settings, save=kept, display=False)
    assert [state.progress.step for state, _ in kept] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7]
    for state, _ in kept[:-1]:
        again = States()
        resumed = small(tiny_task, seed=99)
        fit(resumed, tiny_task, settings, state=state, save=again, display=False)
        for part in ("weights", "averaged", "optimiser"):
            assert same(getattr(again[-1][0], part), getattr(kept[-1][0], part)), part
        assert again[-1][0].progress.best == kept[-1][0].progress.best
        assert again[-1][0].progress.best_step == kept[-1][0].progress.best_step
    assert any(state.averaged for state, _ in kept)


def test_at_the_end_the_model_has_the_weights_that_validated_best(tiny_task):
    model, kept = small(tiny_task), States()
    progress = fit(model, tiny_task, SETTINGS, lr=0.05, steps=12, save=kept, display=False)
    best = [state for state, is_best in kept if is_best][-1]
    assert best.progress.step == progress.best_step < 12  # such a rate gets worse in the end
    assert same(weights(model), best.weights)
    assert not model.training


def test_validation_is_the_mean_position_error_over_all_windows(tiny_task):
    model = small(tiny_task)
    progress = fit(model, tiny_task, SETTINGS, display=False)
    graph, target = tiny_task.val[:]
    with torch.no_grad():
        error = (model(graph).x - target.x).square().mean()
    assert progress.best == pytest.approx(float(error), rel=1e-5)


def test_an_average_of_weights_is_what_is_validated_and_kept(tiny_task):
    kept = States()
    model = small(tiny_task)
    fit(model, tiny_task, SETTINGS, ema=0.2, steps=3, save_every=0.0, save=kept, display=False)
    by_step = {state.progress.step: state for state, _ in kept}
    name = "blocks.0.egnn.layers.0.phi_h.0.weight"
    name = name if name in by_step[1].weights else sorted(by_step[1].weights)[0]
    expected = by_step[1].weights[name]
    for step, decay in ((2, 2 / 11), (3, 0.2)):  # at most 2 / 11, then 3 / 12
        expected = decay * expected + (1 - decay) * by_step[step].weights[name]
    torch.testing.assert_close(by_step[3].averaged[name], expected)
    assert not torch.equal(by_step[3].weights[name], by_step[3].averaged[name])
    assert torch.equal(model.state_dict()[name], by_step[3].averaged[name])


def test_adamw_decays_apart_from_the_gradient(tiny_task):
    models = [small(tiny_task, "linear") for _ in range(2)]
    for model, optimiser in zip(models, ("adam", "adamw"), strict=True):
        fit(model, tiny_task, SETTINGS, optimiser=optimiser, weight_decay=5.0, display=False)
    assert not same(*map(weights, models))


def test_time_is_a_budget(tiny_task):
    progress = fit(
        small(tiny_task, "linear"), tiny_task, max_time="1s", batch_size=16, display=False
    )
    assert progress.time >= 1
    assert progress.step > 1
    assert progress.best < math.inf  # validated although the epoch was not over


def test_a_budget_that_is_used_up_trains_no_more(tiny_task):
    kept = States()
    fit(small(tiny_task), tiny_task, SETTINGS, save=kept, display=False)
    again = fit(small(tiny_task), tiny_task, SETTINGS, state=kept[-1][0], display=False)
    assert again.step == 7


def test_nan_stops_with_the_batch_and_the_setting(tiny_task):
    class Spoil(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if module.progress.step == 4:
                batch.graph.x[0, 0, 0, 0] = torch.nan

    task = copy.deepcopy(tiny_task)
    kept = States()
    with pytest.raises(DivergenceError) as stop:
        fit(small(task), task, SETTINGS, callbacks=[Spoil()], save=kept, display=False)
    fifth = [*Batches(task.train, 16, seed=0, stop=5)][-1].rows.tolist()
    assert stop.value.rows == fifth
    message = str(stop.value)
    assert message.startswith("training: at step 4 (epoch 1), on the training windows")
    assert f"{fifth[0]}, {fifth[1]}" in message
    assert "lower lr (now 0.01)" in message
    assert kept[-1][0].progress.step == 3
    assert all(w.isfinite().all() for w in kept[-1][0].weights.values())


def test_gradients_that_are_nan_never_reach_the_weights(tiny_task):
    class Spoil(pl.Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            if module.progress.step == 2:
                next(module.model.parameters()).grad[0] = torch.nan

    model = small(tiny_task)
    with pytest.raises(DivergenceError, match=r"at step 2 .* a gradient is NaN or infinite"):
        fit(model, tiny_task, SETTINGS, callbacks=[Spoil()], display=False)
    assert all(w.isfinite().all() for w in weights(model).values())


class SpoilSteps(pl.Callback):
    """A batch or a gradient that is NaN, at some steps."""

    def __init__(self, *steps, gradient=False):
        self.steps, self.gradient = steps, gradient

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if module.progress.step in self.steps and not self.gradient:
            batch.graph.x[0, 0, 0, 0] = torch.nan

    def on_before_optimizer_step(self, trainer, module, optimizer):
        if module.progress.step in self.steps and self.gradient:
            next(module.model.parameters()).grad[0] = torch.nan


@pytest.mark.parametrize("gradient", [False, True])
def test_steps_that_blow_up_are_left_out_if_that_is_allowed(tiny_task, gradient):
    class Watch(pl.Callback):
        after: ClassVar = []

        def on_train_batch_end(self, trainer, module, *args):
            self.after.append(weights(module.model))

    task, model = copy.deepcopy(tiny_task), small(tiny_task)
    Watch.after.clear()
    spoil = SpoilSteps(0, 3, 4, gradient=gradient)
    progress = fit(model, task, SETTINGS, skip=2, callbacks=[spoil, Watch()], display=False)
    assert (progress.step, progress.skipped) == (7, 3)
    same = [all(torch.equal(a[k], b[k]) for k in a) for a, b in itertools.pairwise(Watch.after)]
    assert same == [False, False, True, True, False, False]
    assert all(w.isfinite().all() for w in weights(model).values())


def test_too_many_in_a_row_is_divergence_also_across_an_interruption(tiny_task):
    task, kept = copy.deepcopy(tiny_task), States()
    spoil = SpoilSteps(2, 3, 4)
    with pytest.raises(DivergenceError, match=r"at step 4 .* \(skip, now 2\)"):
        fit(small(task), task, SETTINGS, skip=2, callbacks=[spoil], save=kept, display=False)
    state = kept[-1][0]
    assert (state.progress.step, state.progress.skipped_in_a_row) == (3, 1)
    task = copy.deepcopy(tiny_task)
    with pytest.raises(DivergenceError, match="at step 4"):
        fit(small(task), task, SETTINGS, skip=2, state=state, callbacks=[spoil], display=False)


def test_a_validation_that_blows_up_is_never_the_best(tiny_task):
    class Spoil(pl.Callback):
        def on_validation_batch_start(self, trainer, module, batch, batch_idx):
            if module.progress.step == 3:
                batch.graph.x[0, 0, 0, 0] = torch.nan

    task = copy.deepcopy(tiny_task)
    progress = fit(small(task), task, SETTINGS, skip=2, callbacks=[Spoil()], display=False)
    assert progress.best_step in (6, 7)
    assert progress.best < float("inf")


def test_a_budget_of_processor_time_goes_by_the_processors_clock(tiny_task, monkeypatch):
    seconds = itertools.count()
    clocks = types.SimpleNamespace(process_time=lambda: next(seconds), monotonic=lambda: 0.0)
    monkeypatch.setattr("spacetime_en.training.settings.time", clocks)
    short = dataclasses.replace(SETTINGS, max_time="4s", clock="cpu")
    assert fit(small(tiny_task), tiny_task, short, display=False).step < 7
    on_the_wall = dataclasses.replace(short, clock="wall")
    assert fit(small(tiny_task), tiny_task, on_the_wall, display=False).step == 7
    solved = [fit(small(tiny_task, "ridge-shared"), tiny_task, s) for s in (short, on_the_wall)]
    assert [progress.time for progress in solved] == [1.0, 0.0]


def test_divergence_stops_the_run(tiny_task):
    with pytest.raises(DivergenceError, match="lower lr"):
        fit(small(tiny_task, "linear"), tiny_task, lr=1e6, steps=50, clip=None, display=False)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_asked_to_stop_it_does_so_between_two_steps_and_keeps_the_state(tiny_task, number):
    class Ask(pl.Callback):
        def on_before_backward(self, trainer, module, loss):
            if module.progress.step == 4:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    kept = States()
    with pytest.raises(Interrupted):
        fit(small(tiny_task), tiny_task, SETTINGS, callbacks=[Ask()], save=kept, display=False)
    assert kept[-1][0].progress.step == 5
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_asked_before_the_first_step_it_keeps_the_state_of_the_start(tiny_task, number):
    class Ask(pl.Callback):
        def setup(self, trainer, module, stage):
            os.kill(os.getpid(), number)

    kept = States()
    with pytest.raises(Interrupted):
        fit(small(tiny_task), tiny_task, SETTINGS, callbacks=[Ask()], save=kept, display=False)
    assert [state.progress.step for state, _ in kept] == [0]


def test_a_second_ctrl_c_does_not_wait_for_the_step(tiny_task):
    class Ask(pl.Callback):
        def on_before_backward(self, trainer, module, loss):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the step went on")

    with pytest.raises(Interrupted):
        fit(small(tiny_task), tiny_task, SETTINGS, callbacks=[Ask()], display=False)


def test_what_nohup_ignores_stays_ignored(tiny_task):
    class HangUp(pl.Callback):
        def on_before_backward(self, trainer, module, loss):
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        progress = fit(small(tiny_task), tiny_task, SETTINGS, callbacks=[HangUp()], display=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert progress.step == 7


def test_asked_in_the_last_validation_it_ends_and_tells_the_caller(tiny_task):
    class Ask(pl.Callback):
        def on_validation_start(self, trainer, module):
            if module.progress.step == 7:
                os.kill(os.getpid(), signal.SIGINT)

    model = small(tiny_task)
    with pytest.raises(Interrupted):
        fit(model, tiny_task, SETTINGS, callbacks=[Ask()], display=False)
    assert not model.training


def test_time_spent_before_counts(tiny_task):
    kept = States()
    fit(small(tiny_task), tiny_task, SETTINGS, save=kept, display=False)
    state = kept[-1][0]
    state.progress.time = 29.9
    progress = fit(
        small(tiny_task),
        tiny_task,
        SETTINGS,
        steps=None,
        max_time="30s",
        state=state,
        display=False,
    )
    assert 30 <= progress.time < 35


def test_checkpoints_come_no_more_often_than_asked_for(tiny_task):
    kept = States()
    fit(small(tiny_task), tiny_task, SETTINGS, save_every=1e6, save=kept, display=False)
    assert [state.progress.step for state, _ in kept] == [3, 6, 7]


def test_nodes_that_are_padding_count_neither_in_the_loss_nor_in_validation(tiny_task):
    """Windows of three nodes, padded to five with rubbish, train as they do alone."""

    class Padded:
        def __init__(self, windows, pad):
            self.windows, self.pad = windows, pad

        def __len__(self):
            return len(self.windows)

        def __getitem__(self, index):
            graph, target = self.windows[index]
            x, v, a = graph.x[:, :, :3], graph.v[:, :, :3], graph.edge_attr[:, :, :3, :3]
            alone = SpacetimeGraph(x=x, v=v, edge_attr=a[:, 0])
            goal = Forecast(target.x[:, :, :3], target.v[:, :, :3])
            if not self.pad:
                return alone, goal
            wide = SpacetimeGraph(
                x=torch.cat([x, x[:, :, :2] + 7], 2),
                v=torch.cat([v, v[:, :, :2] + 7], 2),
                edge_attr=graph.edge_attr[:, 0],
                observed=torch.tensor([True] * 3 + [False] * 2).expand(len(x), 1, 5),
            )
            rubbish = torch.full_like(goal.x[:, :, :2], 1e3)
            return wide, Forecast(torch.cat([goal.x, rubbish], 2), torch.cat([goal.v, rubbish], 2))

    found = []
    for pad in (False, True):
        task = types.SimpleNamespace(
            train=Padded(tiny_task.train, pad), val=Padded(tiny_task.val, pad)
        )
        model = small(tiny_task, dropout=0.0)
        found.append((fit(model, task, SETTINGS, display=False), weights(model)))
    (one, ours), (other, theirs) = found
    assert one.best == pytest.approx(other.best, rel=1e-3)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-4)


def test_double_precision_resumes_exactly(tiny_task):
    settings = dataclasses.replace(SETTINGS, precision="64-true", ema=0.9)
    kept = States()
    fit(small(tiny_task), tiny_task, settings, save=kept, display=False)
    again = States()
    fit(small(tiny_task), tiny_task, settings, state=kept[0][0], save=again, display=False)
    for part in ("weights", "averaged", "optimiser"):
        assert same(getattr(again[-1][0], part), getattr(kept[-1][0], part))


def test_a_logger_that_cannot_write_does_not_take_the_training_along(tiny_task, capsys, tmp_path):
    class Full(CSVLogger):
        def save(self):
            raise OSError(28, "No space left on device")

    logger = Full(tmp_path)
    progress = fit(small(tiny_task), tiny_task, SETTINGS, loggers=[logger], display=False)
    assert progress.step == 7
    assert capsys.readouterr().err.count("warning: Full cannot write") == 1


def test_nothing_to_train(tiny_task):
    with pytest.raises(InputError, match="StraightLine has nothing to train"):
        fit(build_model("straight-line"), tiny_task, display=False)


def test_parameters_that_influence_nothing(tiny_task):
    with pytest.raises(InputError, match="no parameter influences its forecast"):
        fit(small(tiny_task, spatial=False), tiny_task, SETTINGS)


def test_double_precision(tiny_task):
    kept = States()
    fit(small(tiny_task), tiny_task, SETTINGS, precision="64-true", save=kept, display=False)
    assert {w.dtype for w in kept[-1][0].weights.values()} == {torch.float64}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_on_a_gpu(tiny_task, precision):
    progress = fit(
        small(tiny_task),
        tiny_task,
        SETTINGS,
        precision=precision,
        accelerator="gpu",
        devices=1,
        display=False,
    )
    assert progress.step == 7
    assert progress.best < 10


def test_without_a_terminal_every_validation_is_one_line(tiny_task, capsys):
    fit(small(tiny_task), tiny_task, SETTINGS)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("training SET, ")
    assert len(lines) == 4  # and after steps 3, 6 and 7
    for part in ("epoch 2.3", "step 7", "loss ", "val ", "(straight line ", "samples/s", "left"):
        assert part in lines[-1]


def test_every_preset_learns_something(cache):
    task = load_task("charged", cache=cache, counts=(40, 12, 12), target_steps=100, length=3)
    for preset in ("set", "set-nonequivariant", "set-adjacency", "lstm", "egnn", "mlp", "linear"):
        torch.manual_seed(0)
        graph, target = task.train[:]
        size = {} if preset == "linear" else {"hidden": 16}
        model = build_model(preset, like=graph, **size)
        with torch.no_grad():
            before = float((model.eval()(graph).x - target.x).square().mean())
        fit(model, task, lr=1e-3, steps=10, batch_size=40, validate_every=5, display=False)
        with torch.no_grad():
            assert float((model(graph).x - target.x).square().mean()) < before, preset


def test_logs_are_on_disk_after_every_validation(tiny_task, tmp_path):
    """A run that is killed later has lost nothing of them."""
    logger, lines = CSVLogger(tmp_path), []

    class Look(pl.Callback):
        def on_validation_end(self, trainer, module):
            path = Path(logger.log_dir) / "metrics.csv"
            lines.append(len(path.read_text().splitlines()))

    fit(small(tiny_task), tiny_task, SETTINGS, loggers=[logger], callbacks=[Look()], display=False)
    assert lines == [2, 3, 4]  # a header, and one line a validation


class Staged(StraightLine):
    """Forecasts that get worse when the training comes to its second half."""

    def __init__(self, far: float = 3.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.late = True

    def set_progress(self, fraction):
        self.late = fraction >= 0.5
        return self.late

    def forecast(self, graph):
        line = super().forecast(graph)
        shift = self.weight + self.late * self.settings["far"]
        return Forecast(line.x + shift, line.v)


def test_what_is_forecast_as_in_the_end_beats_what_is_not(tiny_task):
    model = Staged()
    progress = fit(model, tiny_task, steps=8, validate_every=2, lr=1e-6, display=False)
    assert progress.best_is_final
    assert progress.best_step > 4
    assert progress.best > 8  # the early ones were better, and do not count
    assert model.late


def test_interrupted_or_diverged_it_is_left_as_it_is_to_be_used(tiny_task):
    class Stop(pl.Callback):
        def __init__(self, error):
            self.error = error

        def on_train_batch_end(self, trainer, module, *_):
            if module.progress.step == 2:
                raise self.error

    for error in (Interrupted(), DivergenceError("away", [], TrainingProgress())):
        model = Staged()
        with pytest.raises(type(error)):
            fit(model, tiny_task, steps=8, callbacks=[Stop(error)], display=False)
        assert model.late
        assert not model.training


class Likelihood(Staged):
    def losses(self, graph, target, alpha):
        return super().losses(graph, target, alpha) - 100


def test_a_loss_of_the_models_own_may_be_negative(tiny_task):
    assert fit(Likelihood(), tiny_task, steps=3, display=False).step == 3


def test_what_a_pipe_shows_begins_at_once_and_is_plain(tiny_task, capsys, monkeypatch):
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(display, "SHARE", 0.0)
    fit(small(tiny_task), tiny_task, SETTINGS)
    said = capsys.readouterr().err
    first, *lines = said.splitlines()
    assert re.match(
        r"training SET, [\d,]+ parameters, on cpu: 40 windows in batches of 16, 7", first
    )
    assert len(lines) == 7 + 3  # every step, as there is no patience, and every validation
    assert all(
        re.match(r"epoch \d\.\d, step (0|\d+, loss .*), .* (just started|left)$", line)
        for line in lines
    )
    assert not set(said) & {"\x1b", "\r"}


class Corrected(StraightLine):
    """The straight line and a shift, which is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Base("straight-line", frames=3, edge_features=1, targets=1, nodes=None)
        self.shift = torch.nn.Parameter(torch.zeros(()))

    def forecast(self, graph):
        base = self.base(graph)
        return base._replace(x=base.x + self.shift)


HASTY = dataclasses.replace(SETTINGS, lr=0.5)  # every step is worse than none


@pytest.mark.parametrize("ema", [None, 0.9])
def test_what_corrects_a_base_may_be_best_before_the_first_step(tiny_task, ema):
    model, kept = Corrected(), States()
    assert (model.corrects_base, model.base_name) == (True, "straight-line")
    progress = fit(model, tiny_task, HASTY, ema=ema, save=kept, display=False)
    assert (progress.step, progress.best_step) == (7, 0)
    assert [(state.progress.step, best) for state, best in kept] == [
        (0, True),
        (3, False),
        (6, False),
        (7, False),
    ]
    assert model.shift == 0
    graph, target = tiny_task.val[:]
    error = (StraightLine()(graph).x - target.x).square().mean()
    assert progress.best == pytest.approx(float(error), rel=1e-5)


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])  # of squares, whose squares are not single
@pytest.mark.parametrize(("lucky", "best_step"), [(2, 0), (6, 3)])
def test_a_base_is_replaced_only_by_what_is_clearly_better(
    lucky, best_step, unit, tiny_task, monkeypatch
):
    """By more than two standard errors: two windows of twelve show nothing."""

    def errors_of(forecast, target):
        error = torch.ones(len(target.x))
        if forecast.spread is not None:
            error[:lucky] = 0.5
        return unit * error, error

    class Lucky(Corrected):
        def forecast(self, graph):
            forecast = super().forecast(graph)
            return forecast._replace(spread=forecast.x[..., 0]) if self.shift else forecast

    monkeypatch.setattr("spacetime_en.training.module.errors", errors_of)
    progress = fit(Lucky(), tiny_task, SETTINGS, batch_size=len(tiny_task.val), display=False)
    assert progress.best_step == best_step
    assert progress.best == pytest.approx((0.75 if best_step else 1.0) * unit)


def test_the_start_competes_once_also_if_training_was_interrupted_there(tiny_task):
    settings, kept = dataclasses.replace(HASTY, save_every=0.0), States()
    whole = fit(Corrected(), tiny_task, settings, save=kept, display=False)
    assert [state.progress.step for state, _ in kept] == [0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7]
    for state, _ in kept[:-1]:
        again = States()
        resumed = fit(Corrected(), tiny_task, settings, state=state, save=again, display=False)
        assert not any(best for _, best in again)
        assert (resumed.best, resumed.best_step) == (whole.best, 0)
        assert same(again[-1][0].weights, kept[-1][0].weights)
    lost = copy.deepcopy(kept[0][0])  # as after the best checkpoint was damaged
    lost.progress.best = math.inf
    again = States()
    fit(Corrected(), tiny_task, settings, state=lost, save=again, display=False)
    assert [state.progress.step for state, best in again if best] == [0]


def test_what_was_trained_before_goes_on_from_there(tiny_task):
    model = build_model("set-2", like=tiny_task.train[:1][0], hidden=8, channels=4, layers=1)
    fit(model, tiny_task, SETTINGS, display=False)
    other = dataclasses.replace(tiny_task, train=tiny_task.val, val=tiny_task.train)
    graph, target = other.val[:]
    with torch.no_grad():
        before = float((model(graph).x - target.x).square().mean())
    kept = States()
    fit(model, other, HASTY, save=kept, display=False)
    assert kept[0][0].progress.best == pytest.approx(before, rel=1e-5)


def test_a_training_that_was_refused_leaves_a_new_model(tiny_task):
    model = build_model("set-2", like=tiny_task.train[:1][0], hidden=8, channels=4, layers=1)
    with pytest.raises(InputError, match="loggers"):
        fit(model, tiny_task, SETTINGS, loggers=3, display=False)
    fit(model, tiny_task, SETTINGS, display=False)
    assert (model.size != 1).any()


def test_what_corrects_nothing_is_first_validated_after_training(tiny_task):
    assert not small(tiny_task).corrects_base
    progress = fit(small(tiny_task), tiny_task, SETTINGS, lr=1e-12, display=False)
    assert progress.best_step > 0


def test_the_time_of_the_first_validation_counts(tiny_task, monkeypatch):
    seconds = itertools.count()
    clocks = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("spacetime_en.training.settings.time", clocks)
    kept = States()
    settings = dataclasses.replace(SETTINGS, max_time="1s")
    progress = fit(Corrected(), tiny_task, settings, save=kept, display=False)
    assert (progress.step, progress.best_step) == (0, 0)
    assert progress.best < math.inf
    assert [(state.progress.step, best) for state, best in kept] == [(0, True)]


def test_a_base_that_does_not_fit_is_not_the_best(tiny_task):
    class Spoil(pl.Callback):
        def on_validation_batch_start(self, trainer, module, batch, batch_idx):
            if module.progress.step == 0:
                batch.graph.x[0, -1, 0, 0] = torch.nan

    task = copy.deepcopy(tiny_task)
    progress = fit(Corrected(), task, HASTY, callbacks=[Spoil()], display=False)
    assert progress.best_step > 0
