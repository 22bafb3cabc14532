"""The budget of a model in a comparison, and how it is divided among its trainings."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from spacetime_en._util.errors import InputError, amount
from spacetime_en._util.schema import shortened
from spacetime_en.data.task import Task
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.runs.training import Divergence
from spacetime_en.training.batches import Batch, Batches
from spacetime_en.training.fitting import some_windows
from spacetime_en.training.settings import TrainingSettings, seconds

TRIALS = 4  # of learning rates, if there is time for them
SEARCH = 0.3  # fraction of the budget for the trials; the seeds get the rest
TRIAL_STEPS = 20  # fewer would not tell one learning rate from another
VALIDATION_SHARE = 0.1  # fraction of a training that validations may take
MOST_VALIDATIONS = 20  # of a training: more would only make its curve smoother
FEWEST_STEPS = 2  # a shorter training is not worth running


@dataclass(frozen=True)
class Pace:
    """The cost of a model's training on this machine, in seconds of processor time.

    Args:
        setup: everything before the first step.
        step: an optimiser step.
        validation: one pass over the validation windows.
        spent: on measuring this.
    """

    setup: float
    step: float
    validation: float
    spent: float


@dataclass(frozen=True)
class ModelBudget:
    """The budget of one model: its search, its seeds, and all their validations.

    Args:
        text: as given by the user: processor time such as ``5m``, or ``600 steps`` of the
            optimiser, with which the result does not depend on the machine's speed.
        seeds: number of trainings with the best learning rate.
    """

    text: str
    seeds: int

    def __post_init__(self) -> None:
        if self.steps is None:
            try:
                seconds(self.text, "budget")
            except InputError:
                raise InputError(
                    "budget: expected a time such as 90s, 10m or 1h30m, or steps, such as "
                    f"'600 steps', found {shortened(self.text)}."
                ) from None
            return
        share = min(SEARCH / TRIALS, (1 - SEARCH) / self.seeds)  # of the shortest training
        if int(share * self.steps) < FEWEST_STEPS:
            needed = math.ceil(FEWEST_STEPS / share)
            raise self._too_small(
                f"{TRIALS + self.seeds} trainings of at least {FEWEST_STEPS} steps each take "
                f"{needed} steps"
            )

    @property
    def steps(self) -> int | None:
        """The number of optimiser steps, if the budget is given in steps."""
        match = re.fullmatch(r"\s*(\d+)\s*steps?\s*", self.text)
        return int(match[1]) if match else None

    @property
    def seconds(self) -> float | None:
        """The processor time, if the budget is given as time."""
        return None if self.steps is not None else seconds(self.text, "budget")

    def trials(self, pace: Pace | None) -> int:
        """The number of learning rates to try; none if there is no time for two, and the seeds.

        Args:
            pace: known if the budget is given as time.
        """
        if pace is None or self.seconds is None:
            return TRIALS
        left = self.seconds - pace.spent
        most = int(SEARCH * left / (pace.setup + pace.validation + TRIAL_STEPS * pace.step))
        is_enough = (1 - SEARCH) * left / self.seeds >= _shortest(pace)  # for each seed
        return min(TRIALS, most) if most > 1 and is_enough else 0

    def trial(self, settings: TrainingSettings, pace: Pace | None) -> TrainingSettings:
        """The settings of a trial of a learning rate, if there are any."""
        return self._with(settings, SEARCH / self.trials(pace), pace)

    def seed(self, settings: TrainingSettings, pace: Pace | None) -> TrainingSettings:
        """The settings of a training with the best learning rate."""
        search = SEARCH if self.trials(pace) else 0.0
        return self._with(settings, (1 - search) / self.seeds, pace)

    def rest(
        self, settings: TrainingSettings, pace: Pace | None, diverged: Divergence
    ) -> TrainingSettings | None:
        """The settings for what a diverged training has left of its budget; None if too little."""
        if settings.steps is not None:
            steps = settings.steps - diverged.step
            return replace(settings, steps=steps) if steps >= FEWEST_STEPS else None
        assert pace is not None
        assert settings.max_time is not None
        # Another starts from the beginning, and the step that diverged took time, too.
        left = seconds(settings.max_time) - diverged.seconds - pace.setup - pace.step
        return _of_seconds(settings, left) if left >= FEWEST_STEPS * pace.step else None

    def _with(
        self, settings: TrainingSettings, share: float, pace: Pace | None
    ) -> TrainingSettings:
        nothing: dict[str, Any] = dict.fromkeys(("epochs", "steps", "max_time"))
        if self.steps is not None:
            steps = int(share * self.steps)
            every = max(1, steps // 10)
            return replace(settings, **nothing | {"steps": steps}, validate_every=every)
        assert pace is not None
        assert self.seconds is not None
        # The last validation comes after the budget of the training itself, and so does, on
        # average, half of its last step.
        left = share * (self.seconds - pace.spent) - pace.setup - pace.validation - pace.step / 2
        steps_left = left / pace.step
        if steps_left < FEWEST_STEPS:
            needed = math.ceil(_shortest(pace) / share + pace.spent)
            raise self._too_small(
                f"{amount(self.seeds, 'training')} of {FEWEST_STEPS} steps and a validation each "
                f"take {needed} s here"
            )
        count = min(MOST_VALIDATIONS, VALIDATION_SHARE * left / pace.validation)
        count = max(count, 0.5)  # (half a validation: none before the one at the end)
        often = replace(settings, **nothing, validate_every=max(1, int(steps_left / count)))
        return _of_seconds(often, left)

    def _too_small(self, why: str) -> InputError:
        return InputError(
            f"budget: {shortened(self.text)} is too small: {why}; give more, or fewer seeds."
        )


def _shortest(pace: Pace) -> float:
    """The seconds of a training that is worth its name, with its validation."""
    # (The validation begins, on average, half a step late.)
    return pace.setup + (FEWEST_STEPS + 0.5) * pace.step + pace.validation


def _of_seconds(settings: TrainingSettings, left: float) -> TrainingSettings:
    return replace(settings, max_time=f"{left:.3f}s")


def measure_pace(model: Forecaster, task: Task, settings: TrainingSettings) -> Pace:
    """Time a model's calibration, training steps and validation batches; the best of a few."""
    begin = time.process_time()
    if model.calibrates:
        model.calibrate(some_windows(task.train, model), some_windows(task.val, model))
    setup = time.process_time() - begin
    on_gpu = settings.accelerator != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")  # same device and precision as the training
    dtype = next(model.to(device).parameters()).dtype
    training, validation = (
        [
            b.to(device, dtype)
            for b, _ in zip(Batches(windows, settings.batch, seed=0), (1, 2), strict=False)
        ]
        for windows in (task.train, task.val)
    )
    step = min(_seconds_of_step(model.train(), batch, settings) for batch in training)
    forecast = min(_seconds_of_forecast(model.eval(), batch) for batch in validation)
    batches = -(-len(task.val) // settings.batch)
    passes = 2 if model.corrects_base else 1  # (its base is validated before the first step)
    spent = time.process_time() - begin
    return Pace(setup + (passes - 1) * forecast * batches, step, forecast * batches, spent)


def _seconds_of_step(model: Forecaster, batch: Batch, settings: TrainingSettings) -> float:
    begin = time.process_time()
    losses = model.losses(batch.graph, batch.target, settings.alpha)
    torch.autograd.backward(losses.mean())
    model.zero_grad()
    _finish_on(batch.graph.x.device)
    return time.process_time() - begin


def _seconds_of_forecast(model: Forecaster, batch: Batch) -> float:
    begin = time.process_time()
    with torch.no_grad():
        model(batch.graph)
    _finish_on(batch.graph.x.device)
    return time.process_time() - begin


def _finish_on(device: torch.device) -> None:
    """Wait for pending work on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
