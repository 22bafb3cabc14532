"""The progress display of a training."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl
from rich.progress import BarColumn, Progress

from spacetime_en._util.progress import bars
from spacetime_en._util.terminal import Terminal
from spacetime_en.data.task import Task
from spacetime_en.evaluation import mean_position_error
from spacetime_en.nn.models.trivial import StraightLine

SECONDS_BETWEEN_LINES = 10.0  # the maximum between lines; later a share of the time
SHARE = 0.05  # of the training time: so that a long training does not flood the log


class Display(pl.Callback):
    """A live line on a terminal; elsewhere an occasional plain line on standard error.

    Every training starts with a line that says what is trained where, and every validation prints
    one; without a live line, others are printed in between.

    The error of the straight-line forecast on the task is shown next to the model's.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.console = Terminal(stderr=True)
        self.bar: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        size = pl_module.settings.batch
        self.straight = mean_position_error(StraightLine(), self.task.val, size)
        self.started, self.first_step = time.monotonic(), pl_module.progress.step
        self.used_before = pl_module.used
        self.last_line = self.started
        self.console.say(self._beginning(pl_module))
        if self.console.is_terminal:
            self.bar = bars(self.console, *[BarColumn(20)] * (self.console.width > 120))
            self.line = self.bar.add_task("starting", total=1.0)
            self.bar.start()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None:
            self.bar.update(self.line, completed=pl_module.used, description=self._now(pl_module))
        elif trainer.is_global_zero:
            now = time.monotonic()
            if now - self.last_line > max(SECONDS_BETWEEN_LINES, SHARE * (now - self.started)):
                self._say(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            self._say(pl_module)

    def _say(self, module: Any) -> None:
        self.console.say(self._now(module))
        self.last_line = time.monotonic()

    def _beginning(self, module: Any) -> str:
        """What is trained, where, and for how long."""
        settings, model = module.settings, module.model
        parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        budget = module.budget
        steps = f"{budget.steps:,} steps" if budget.steps is not None else ""
        limit = clock(budget.time) if budget.time else ""
        return (
            f"training {type(model).__name__}, {parameters:,} parameters, on {module.device}: "
            f"{len(self.task.train):,} windows in batches of {settings.batch}, "
            f"{' or '.join(filter(None, (steps, limit)))}; validation every "
            f"{module.validate_every:,} steps (val: MSE per coordinate of the positions)"
        )

    def _now(self, module: Any) -> str:
        """Epoch, step, loss, validation error, the straight line's error, samples/s, time left."""
        step = module.progress.step
        took = max(1e-9, time.monotonic() - self.started)
        rate = (step - self.first_step) * module.settings.batch / took
        done = module.used - self.used_before
        left = "just started"
        if done > 0 and step > self.first_step:
            left = f"{clock(took * max(0.0, 1 - module.used) / done)} left"
        parts = [f"epoch {step / module.batches_per_epoch:.1f}", f"step {step}"]
        if step > self.first_step:
            parts.append(f"loss {module.last_loss:.4g}")
        if module.validation:
            error = module.validation["position_mse"]
            parts.append(f"val {error:.4g} (straight line {self.straight:.4g})")
        return ", ".join([*parts, f"{rate:.0f} samples/s", left])

    def teardown(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def clock(seconds: float) -> str:
    """``3:07``, ``1:02:09``."""
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    return f"{h}:{m:02d}:{s:02d}" if h else f"{m}:{s:02d}"
