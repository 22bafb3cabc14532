"""Train a model on a task: ``fit(model, task, epochs=10)``."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.loggers import Logger
from torch import Tensor

from spacetime_en._util.errors import InputError, Interrupted, no_such
from spacetime_en._util.progress import silenced
from spacetime_en._util.schema import argument, shortened
from spacetime_en._util.signals import Handler, handle_stop_signals, stop_signals
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.data.compatibility import facts_of
from spacetime_en.data.task import Task
from spacetime_en.data.windows import Windows
from spacetime_en.nn.forecaster import ClosedForm, Example, Forecaster
from spacetime_en.training.batches import Batch, Batches
from spacetime_en.training.display import Display
from spacetime_en.training.module import ForecastModule, Progress, State
from spacetime_en.training.settings import TrainingSettings

CALIBRATED = 2_000  # windows that a model may look at before training
Keep = Callable[[State, bool], None]


def fit(
    model: Forecaster,
    task: Task,
    settings: TrainingSettings | None = None,
    *,
    state: State | None = None,
    keep: Keep | None = None,
    loggers: Sequence[Logger] = (),
    callbacks: Sequence[pl.Callback] = (),
    display: bool = True,
    **changes: Any,
) -> Progress:
    """Train `model` in place; at the end it has the weights that were best in validation.

    A model with a closed form, such as ridge, is solved instead.

    (With a `state`, the best of this sitting; the last, if nothing in it was better than before.)

    Args:
        model: what to train.
        task: what on.
        settings: how; None: the defaults.
        state: where an earlier training stopped, to go on from there.
        keep: called with the state of the training and whether it is the best so far, after every
            validation and every ``save_every`` seconds (in the first process only).
        loggers, callbacks: Lightning's.
        display: show how it goes.
        changes: settings to replace, such as ``lr=1e-3, epochs=10``.
    Returns: how far the training came.
    """
    model = argument("model", model, Forecaster)
    if not (hasattr(task, "train") and hasattr(task, "val")):
        raise InputError(f"task: expected a Task, found {shortened(task)}.")
    settings = argument("settings", settings, TrainingSettings | None) or TrainingSettings()
    state = argument("state", state, State | None)
    loggers = argument("loggers", loggers, Sequence[Logger])
    known = [field.name for field in fields(settings)]
    if unknown := set(changes) - set(known):
        raise no_such("setting", min(unknown), known)
    settings = replace(settings, **changes)
    # (What only looks like a task, of graphs made by hand, has no such facts.)
    model.trained_on = facts_of(task) if isinstance(task, Task) else None
    if isinstance(model, ClosedForm):
        return _solve(model, task, settings, keep)
    if state is None and type(model).calibrate is not Forecaster.calibrate:
        model.calibrate(_some(task.train, model), _some(task.val, model))
    module = ForecastModule(model, task, settings, state, loggers)
    keeper = _Keeper(keep, settings.save_every)
    shown = [Display(task)] if display else []
    try:
        if module.used < 1:
            with _quiet(), stop_signals(keeper.asked_by(module)):
                trainer = _trainer(settings, [*shown, *callbacks, keeper])
                trainer.fit(module)
            for logger in module.sinks if trainer.is_global_zero else ():
                with suppress(OSError):
                    logger.finalize("success")
        if keeper.best is not None:
            model.load_state_dict(keeper.best)
    finally:  # also interrupted, a model is left as it is to be used
        model.set_progress(1.0)
        model.eval()
    if module.asked_to_stop:  # too late to stop this one, but not what the caller does next
        raise Interrupted
    return module.progress


def _some(windows: Windows, model: Forecaster) -> Example:
    """Windows and targets for a model to look at before training, from all of the data."""
    parameter = next(model.parameters(), torch.empty(0))
    graph, target = windows[evenly_spaced_indices(len(windows), CALIBRATED)]
    place = parameter.device, parameter.dtype
    return graph.to(*place), target.to(*place)


def _solve(
    model: ClosedForm, task: Task, settings: TrainingSettings, keep: Keep | None
) -> Progress:
    """Weights that are computed: one step, and no settings but the size of batches."""
    start = time.monotonic()
    train, val = (
        ((batch.graph, batch.target) for batch in Batches(windows, settings.batch_size))
        for windows in (task.train, task.val)
    )
    error = model.eval().solve(train, val)
    progress = Progress(step=1, time=time.monotonic() - start, best=error, best_step=1)
    if keep is not None:
        keep(State(progress, {k: w.detach().cpu() for k, w in model.state_dict().items()}), True)
    return progress


class _Keeper(pl.Callback):
    """Hands out the state of the training, and stops it between two steps when asked to."""

    def __init__(self, keep: Keep | None, every: float) -> None:
        self.keep, self.every = keep, every
        self.best: dict[str, Tensor] | None = None
        self._last = time.monotonic()

    def asked_by(self, module: ForecastModule) -> Handler:
        """What a signal does: the training stops after this step; asked twice, at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if module.asked_to_stop and number == signal.SIGINT:
                raise Interrupted
            module.asked_to_stop = True

        return ask

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._last = time.monotonic()
        handle_stop_signals(self.asked_by(pl_module))  # (Lightning has put its own in front)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Batch, batch_idx: int
    ) -> None:
        late = time.monotonic() - self._last > self.every
        alone = trainer.world_size == 1
        stop = pl_module.asked_to_stop if alone else pl_module.all_asked_to_stop
        if trainer.is_global_zero and (late or stop):
            self._hand_out(pl_module.state(), False)
        if stop:
            raise Interrupted

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        state = pl_module.state()
        if pl_module.improved:
            self.best = state.model
        if trainer.is_global_zero:
            self._hand_out(state, pl_module.improved)

    def _hand_out(self, state: State, best: bool) -> None:
        if self.keep is not None:
            self.keep(state, best)
        self._last = time.monotonic()


def _trainer(settings: TrainingSettings, callbacks: list[pl.Callback]) -> pl.Trainer:
    on_cpu = settings.accelerator == "cpu" or not (
        torch.cuda.is_available() or torch.backends.mps.is_available()
    )
    if "mixed" in settings.precision and on_cpu:
        raise InputError(f"precision: {settings.precision} needs a GPU; use 32-true here.")
    cores = os.cpu_count() or 1
    if on_cpu and settings.devices is not None and settings.devices > cores:
        raise InputError(f"devices: this machine has {cores} core(s), found {settings.devices}.")
    if settings.num_nodes > 1 and "LOCAL_WORLD_SIZE" not in os.environ and not _environment():
        raise InputError(
            f"num_nodes: {settings.num_nodes} machines need a launcher, such as torchrun or SLURM "
            "(see docs/scaling.md)."
        )
    try:
        return pl.Trainer(
            accelerator=settings.accelerator,
            devices=_devices(settings),
            num_nodes=settings.num_nodes,
            strategy=_strategy(settings),
            precision=settings.precision,
            max_epochs=-1,  # the module counts its own budget
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,  # batches are cut for each process already
            num_sanity_val_steps=0,
            logger=False,  # the module writes to them itself
            callbacks=callbacks,
            plugins=_environment(),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, ValueError) as error:
        what = " ".join(str(error).split())
        raise InputError(
            f"accelerator, devices, precision: this machine has not that: {what}"
        ) from None


def _environment() -> list[Any]:
    """On SLURM, without Lightning's own requeueing: a run goes on from its own checkpoints."""
    return [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []


def _devices(settings: TrainingSettings) -> int | str:
    if settings.devices is not None:
        return settings.devices
    return int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or "auto"  # (torchrun sets it)


def _strategy(settings: TrainingSettings) -> str:
    """DDP where there are several processes; some parameters of the paper's SET get no gradient."""
    devices = _devices(settings)
    if devices == "auto":
        on_gpus = settings.accelerator in ("auto", "gpu", "cuda")
        devices = torch.cuda.device_count() if on_gpus else 1
    several = int(devices) * settings.num_nodes > 1
    return "ddp_find_unused_parameters_true" if several else "auto"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice, most of which is about loaders and loops that are not used."""
    with silenced("lightning.pytorch", "lightning.fabric"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        warnings.filterwarnings("ignore", module="lightning")
        yield
