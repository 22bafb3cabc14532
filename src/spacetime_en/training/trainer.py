"""The Lightning trainer: runs a :class:`ForecastModule` and passes on states to save."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.warnings import PossibleUserWarning
from torch import Tensor

from spacetime_en._util.errors import InputError, Interrupted
from spacetime_en._util.progress import silenced
from spacetime_en._util.schema import reason
from spacetime_en._util.signals import Handler, handle_stop_signals, stop_signals
from spacetime_en.training.batches import Batch
from spacetime_en.training.module import ForecastModule
from spacetime_en.training.settings import TrainingSettings
from spacetime_en.training.state import TrainingState

SaveState = Callable[[TrainingState, bool], None]


def run_training(
    module: ForecastModule, callbacks: Sequence[pl.Callback], save: SaveState | None
) -> dict[str, Tensor] | None:
    """Train to the end of the budget.

    Args:
        module: what to train, and how.
        callbacks: further callbacks.
        save: see :func:`fit`.
    Returns: the weights that validated best in this session; None if none improved on earlier ones.
    """
    saver = _StateSaver(save, module.settings.save_every)
    with _quiet(), stop_signals(saver.stop_handler(module)):
        trainer = _trainer(module.settings, [*callbacks, saver])
        trainer.fit(module)
    for logger in module.active_loggers if trainer.is_global_zero else ():
        with suppress(OSError):
            logger.finalize("success")
    return saver.best


class _StateSaver(pl.Callback):
    """Passes on states to save, and stops the training between two steps when asked to."""

    def __init__(self, save: SaveState | None, every: float) -> None:
        self.save, self.every = save, every
        self.best: dict[str, Tensor] | None = None
        self._last_save = time.monotonic()

    def stop_handler(self, module: ForecastModule) -> Handler:
        """A signal handler: stops the training after this step, or at once on a second Ctrl-C."""

        def handle(number: int, frame: FrameType | None) -> None:
            if module.stop_requested and number == signal.SIGINT:
                raise Interrupted
            module.stop_requested = True

        return handle

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._last_save = time.monotonic()
        handle_stop_signals(self.stop_handler(pl_module))  # (Lightning has installed its own)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Batch, batch_idx: int
    ) -> None:
        late = time.monotonic() - self._last_save > self.every
        single = trainer.world_size == 1
        stop = pl_module.stop_requested if single else pl_module.any_stop_requested
        if trainer.is_global_zero and (late or stop):
            self._save(pl_module.state(), False)
        if stop:
            raise Interrupted

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        state = pl_module.state()
        if pl_module.improved:
            self.best = state.model
        if trainer.is_global_zero:
            self._save(state, pl_module.improved)

    def _save(self, state: TrainingState, best: bool) -> None:
        if self.save is not None:
            self.save(state, best)
        self._last_save = time.monotonic()


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
            use_distributed_sampler=False,  # batches are already split by process
            num_sanity_val_steps=0,
            logger=False,  # the module writes to them itself
            callbacks=callbacks,
            plugins=_environment(),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, ValueError) as error:
        raise InputError(
            f"accelerator, devices, precision: not available on this machine ({reason(error)})."
        ) from None


def _environment() -> list[Any]:
    """On SLURM, disable Lightning's requeueing: runs continue from their own checkpoints."""
    return [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []


def _devices(settings: TrainingSettings) -> int | str:
    if settings.devices is not None:
        return settings.devices
    return int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or "auto"  # (torchrun sets it)


def _strategy(settings: TrainingSettings) -> str:
    """DDP for several processes; it must allow for parameters of SET that get no gradient."""
    devices = _devices(settings)
    if devices == "auto":
        on_gpus = settings.accelerator in ("auto", "gpu", "cuda")
        devices = torch.cuda.device_count() if on_gpus else 1
    several = int(devices) * settings.num_nodes > 1
    return "ddp_find_unused_parameters_true" if several else "auto"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's advice, mostly about data loaders and loops that are not used here."""
    with silenced("lightning.pytorch", "lightning.fabric"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        warnings.filterwarnings("ignore", module="lightning")
        yield
