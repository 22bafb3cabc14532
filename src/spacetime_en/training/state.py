"""The progress of a training, and everything it needs to continue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, NonNegativeFloat


@dataclass
class TrainingProgress:
    """The progress of a training.

    Args:
        step: number of optimiser steps done.
        time: seconds spent, by the clock of the settings.
        best: lowest mean position MSE on the validation windows so far.
        best_step: the step at which it was reached; 0: by the initial weights.
        best_is_final: whether the model then forecast as it will at the end of training (see
            ``Forecaster.set_progress``).
        first_loss: the loss that divergence is measured against.
        skipped: number of steps that diverged and were skipped.
        skipped_in_a_row: number of those since the last good step.
    """

    step: Count = 0
    time: NonNegativeFloat = 0.0
    best: Annotated[float, msgspec.Meta(ge=0.0)] = float("inf")
    best_step: Count = 0
    best_is_final: bool = True
    first_loss: float | None = None
    skipped: Count = 0
    skipped_in_a_row: Count = 0


class DivergenceError(InputError):
    """The training diverged: what happened, where, and which setting to change.

    Args:
        message: the sentence for the user.
        rows: indices of the training windows in the batch.
        progress: when it diverged.
    """

    def __init__(self, message: str, rows: list[int], progress: TrainingProgress) -> None:
        super().__init__(message)
        self.rows, self.progress = rows, progress


@dataclass
class TrainingState:
    """Everything a training needs to continue: a few numbers and named tensors.

    No random state is saved: the random numbers of a step depend only on the seed, the step and
    the process.

    Args:
        progress: of the training.
        weights: the model's weights.
        averaged: their exponential moving average; empty if there is none.
        optimiser: the optimiser's moments, such as ``"3/exp_avg"`` of the fourth parameter.
    """

    progress: TrainingProgress = field(default_factory=TrainingProgress)
    weights: dict[str, Tensor] = field(default_factory=dict)
    averaged: dict[str, Tensor] = field(default_factory=dict)
    optimiser: dict[str, Tensor] = field(default_factory=dict)

    @property
    def model(self) -> dict[str, Tensor]:
        """The weights to forecast with."""
        return self.averaged or self.weights
