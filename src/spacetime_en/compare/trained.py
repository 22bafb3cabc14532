"""Train in a run folder as part of a job, and say in plain numbers how it went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import inside
from spacetime_en.compare.job import Tell
from spacetime_en.compare.results import Result
from spacetime_en.data.task import Task
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import Run, learning_curve
from spacetime_en.runs.training import DIVERGED_FILE, train

if TYPE_CHECKING:
    from lightning.pytorch import Callback


def import_trainer() -> None:
    """Import Lightning, which takes seconds that are not the first model's."""
    import lightning.pytorch  # noqa: F401


def train_first_that_converges(
    configs: Sequence[Config], place: Path, tell: Tell, task: Task
) -> tuple[Run | None, Config, Result]:
    """Train with the first of some configs with which it does not diverge.

    Args:
        configs: the same but for the learning rate, best first.
        place: the folder of the run; with any config but the first, one beside it.
        tell: see :meth:`Job.carry_out`.
        task: that of the configs.
    Returns: the run (None if training diverges with every config, which is a result too), the
        config of the last try, and how the training went.
    """
    diverged = []
    for number, config in enumerate(configs):
        rate = config.training.lr
        name = place.name if number == 0 else f"{place.name}--then{rate:g}"
        folder = inside(place.parent, place.with_name(name))
        try:
            run = train(
                config,
                folder,
                resume=True,
                loggers=("csv",),
                callbacks=[budget_reporter(tell)],
                display=False,
                notify=lambda text: None,
                task=task,
            )
            break
        except InputError:
            if not (folder / DIVERGED_FILE).exists():
                raise
            diverged.append(rate)
    else:
        return None, config, {"diverged": True, "diverged_at": diverged[:-1]}
    progress = run.load("last").progress
    training = {
        "diverged": False,
        "diverged_at": diverged,
        "steps": progress.step,
        "skipped": progress.skipped,
        "samples": progress.step * run.config.training.batch,
        "seconds": progress.time,
        "val_mse": progress.best,
        "best_step": progress.best_step,
        "curve": learning_curve(folder),
    }
    return run, config, training


def budget_reporter(tell: Tell) -> Callback:
    """A callback that reports about once a second which fraction of the budget is used."""
    from lightning.pytorch.callbacks import LambdaCallback

    last = 0.0

    def report(trainer: Any, module: Any, *args: Any) -> None:
        nonlocal last
        if time.monotonic() > last + 1:
            last = time.monotonic()
            tell(module.used, f"step {module.progress.step}")

    return LambdaCallback(on_train_batch_end=report)
