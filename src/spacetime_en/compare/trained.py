"""Train in a run folder as part of a job, and report plain numbers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import inside
from spacetime_en.compare.job import Tell
from spacetime_en.compare.results import Result
from spacetime_en.data.task import Task
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import Run, learning_curve
from spacetime_en.runs.training import Divergence, read_divergence, train
from spacetime_en.training.settings import TrainingSettings

if TYPE_CHECKING:
    from lightning.pytorch import Callback

Rest = Callable[[TrainingSettings, Divergence], TrainingSettings | None]


def train_first_that_converges(
    configs: Sequence[Config], place: Path, tell: Tell, task: Task, rest: Rest | None = None
) -> tuple[Run | None, Config, Result]:
    """Train with the first of several configs that does not diverge.

    A training already known to have diverged in its folder is not repeated.

    Args:
        configs: identical except for the learning rate, best first.
        place: the folder of the run; for all configs but the first, one next to it.
        tell: see :meth:`Job.carry_out`.
        task: that of the configs.
        rest: the settings for what a diverged training has left of its budget, None if that is too
            little to train; without it, each attempt has its own budget.
    Returns: the run (None if training diverges with every config tried, which is also a result),
        the config of the last attempt, and how the training went.
    """
    diverged: list[float] = []
    seconds, left = 0.0, None
    for number, config in enumerate(configs):
        rate = config.training.lr
        if left is not None:
            config = dataclasses.replace(config, training=dataclasses.replace(left, lr=rate))
        name = place.name if number == 0 else f"{place.name}--then{rate:g}"
        folder = inside(place.parent, place.with_name(name))
        run = read_divergence(folder) or _train_or_diverge(config, folder, tell, task)
        if isinstance(run, Run):
            break
        diverged.append(rate)
        seconds += run.seconds
        if rest is not None and (left := rest(config.training, run)) is None:
            break
    if not isinstance(run, Run):
        return None, config, {"diverged": True, "diverged_at": diverged[:-1]}
    progress = run.load("last").progress
    training = {
        "diverged": False,
        "diverged_at": diverged,
        "diverged_seconds": seconds,
        "steps": progress.step,
        "skipped": progress.skipped,
        "samples": progress.step * run.config.training.batch,
        "seconds": progress.time,
        "val_mse": progress.best,
        "best_step": progress.best_step,
        "curve": learning_curve(folder),
    }
    return run, config, training


def _train_or_diverge(config: Config, folder: Path, tell: Tell, task: Task) -> Run | Divergence:
    try:
        return train(
            config,
            folder,
            resume=True,
            loggers=("csv",),
            callbacks=[budget_reporter(tell)],
            display=False,
            notify=lambda text: None,
            task=task,
        )
    except InputError:
        if (known := read_divergence(folder)) is None:
            raise
        return known


def budget_reporter(tell: Tell) -> Callback:
    """A callback that reports, about once a second, the fraction of the budget used."""
    from lightning.pytorch.callbacks import LambdaCallback

    last = 0.0

    def report(trainer: Any, module: Any, *args: Any) -> None:
        nonlocal last
        if time.monotonic() > last + 1:
            last = time.monotonic()
            tell(module.used, f"step {module.progress.step}")

    return LambdaCallback(on_train_batch_end=report)
