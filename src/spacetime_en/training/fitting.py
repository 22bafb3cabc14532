"""Train a model on a task: ``fit(model, task, epochs=10)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch

from spacetime_en._util.errors import InputError, Interrupted, no_such
from spacetime_en._util.schema import argument, shortened
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.data.compatibility import facts_of
from spacetime_en.data.task import Task
from spacetime_en.data.windows import Windows
from spacetime_en.nn.forecaster import ClosedForm, Example, Forecaster
from spacetime_en.training.batches import Batches
from spacetime_en.training.settings import TrainingSettings
from spacetime_en.training.state import TrainingProgress, TrainingState

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

    from spacetime_en.training.trainer import SaveState

CALIBRATED = 2_000  # windows on which a model may be calibrated before training


def fit(
    model: Forecaster,
    task: Task,
    settings: TrainingSettings | None = None,
    *,
    state: TrainingState | None = None,
    save: SaveState | None = None,
    loggers: Sequence[Logger] = (),
    callbacks: Sequence[Callback] = (),
    display: bool = True,
    **changes: Any,
) -> TrainingProgress:
    """Train `model` in place; at the end it has the weights that validated best.

    After continuing from a `state`, these are the best since then, or the last ones if none
    improved on those before. A model that corrects a simple forecast is also validated before the
    first step, so that it is never worse on the validation windows. A model that was trained before
    continues from its weights, with the base and the scales that they were learned with. A model
    with a closed-form solution, such as ridge, is solved instead.

    Args:
        model: the model to train.
        task: the training and validation windows.
        settings: how to train; None: the defaults.
        state: where an earlier training stopped, to continue from there.
        save: called with the state of the training and whether it is the best so far, after every
            validation and every ``save_every`` seconds (in the first process only).
        loggers: Lightning loggers.
        callbacks: Lightning callbacks.
        display: show the progress on standard error.
        changes: settings to replace, such as ``lr=1e-3, epochs=10``.
    Returns: the progress of the training.
    """
    model = argument("model", model, Forecaster)
    if not (hasattr(task, "train") and hasattr(task, "val")):
        raise InputError(f"task: expected a Task, found {shortened(task)}.")
    settings = argument("settings", settings, TrainingSettings | None) or TrainingSettings()
    state = argument("state", state, TrainingState | None)
    names = [field.name for field in fields(settings)]
    if unknown := set(changes) - set(names):
        raise no_such("setting", min(unknown), names)
    settings = replace(settings, **changes)
    if settings.batch_size is None:
        settings = settings.for_nodes(mean_nodes(task))
    # (A user's look-alike of a task, with graphs built by hand, has no such facts.)
    facts = facts_of(task) if isinstance(task, Task) else None
    if isinstance(model, ClosedForm):
        model.trained_on = facts
        return _solve(model, task, settings, save)
    # Here and not above: Lightning takes as long to import as PyTorch.
    from lightning.pytorch.loggers import Logger

    from spacetime_en.training.display import Display
    from spacetime_en.training.module import ForecastModule
    from spacetime_en.training.trainer import run_training

    loggers = argument("loggers", loggers, Sequence[Logger])
    if state is None and model.trained_on is None and model.calibrates:
        model.calibrate(some_windows(task.train, model), some_windows(task.val, model))
    model.trained_on = facts
    module = ForecastModule(model, task, settings, state, loggers)
    shown = [Display(task)] if display else []
    try:
        if module.used < 1 and (best := run_training(module, [*shown, *callbacks], save)):
            model.load_state_dict(best)
    finally:  # also leave an interrupted model ready for use
        model.set_progress(1.0)
        model.eval()
    if module.stop_requested:  # too late to stop this training, but not what the caller does next
        raise Interrupted
    return module.progress


def mean_nodes(task: Task) -> float:
    """The mean number of nodes in a training window."""
    counts = getattr(task.train, "node_counts", None)
    return float(task.train[:1][0].x.shape[2] if counts is None else counts.mean())


def some_windows(windows: Windows, model: Forecaster) -> Example:
    """Windows and targets, spread evenly over the data, to calibrate a model on."""
    parameter = next(model.parameters(), torch.empty(0))
    graph, target = windows[evenly_spaced_indices(len(windows), CALIBRATED)]
    place = parameter.device, parameter.dtype
    return graph.to(*place), target.to(*place)


def _solve(
    model: ClosedForm, task: Task, settings: TrainingSettings, save: SaveState | None
) -> TrainingProgress:
    """Solve for the weights in one step; of the settings only batch size and clock apply."""
    start = settings.now()
    train, val = (
        ((batch.graph, batch.target) for batch in Batches(windows, settings.batch))
        for windows in (task.train, task.val)
    )
    error = model.eval().solve(train, val)
    progress = TrainingProgress(step=1, time=settings.now() - start, best=error, best_step=1)
    if save is not None:
        weights = {name: weight.detach().cpu() for name, weight in model.state_dict().items()}
        save(TrainingState(progress, weights), True)
    return progress
