"""How a model is trained: optimiser, budget, machine."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import (
    Count,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    arguments,
    shortened,
)

Optimiser = Literal["adam", "adamw"]
Schedule = Literal["constant", "cosine"]
Clock = Literal["wall", "cpu"]
Precision = Literal["32-true", "64-true", "16-mixed", "bf16-mixed"]
Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps"]
Whose = Literal["paper", "ours"]  # settings of a preset
Below1 = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]

DEFAULT_EPOCHS = 100  # if no budget is given
BATCH_WINDOWS, BATCH_NODES = 100, 500  # maximum batch, if its size is not given


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained. Training ends when the first of the given budgets is used up.

    Args:
        lr: learning rate.
        batch_size: windows per step, summed over all processes. None: as many as have 500 nodes
            in all, at most 100.
        optimiser: adam, or adamw (decoupled weight decay).
        weight_decay: weight decay of the optimiser.
        alpha: weight of the velocity error in the loss (Eq. 13 of the paper).
        clip: largest norm of the gradient; longer gradients are scaled down to it. None: no limit.
        skip: number of diverging steps in a row (a loss that is not finite or 10,000 times that of
            the last-frame forecast, a gradient that is not finite) that are skipped before
            training stops as diverged.
        warmup: fraction of the budget over which the learning rate rises linearly from 0.
        schedule: learning-rate schedule after the warm-up: constant, or cosine (down to 0).
        ema: decay per step of an exponential moving average of the weights, such as 0.999; at step
            n at most (1 + n) / (10 + n), so that the average forgets the start. The average is then
            validated and saved. None: no average.
        jitter: largest size of the random errors that are added to observed positions in every step
            of training, relative to a node's typical displacement from frame to frame. They change
            velocities with them, and so only data whose velocities are differences of positions
            are jittered. 0: none.
        augment: rotate or reflect each window and its target at random in every training step.
            What an equivariant model learns does not depend on it.
        epochs: budget in passes over the training windows (100 if no budget is given).
        steps: budget in optimiser steps.
        max_time: budget in time, including validation, such as 90s, 10m or 1h30m.
        clock: how max_time is measured: wall, or cpu (processor time of this process and its
            threads; a fair measure where trainings share a machine).
        validate_every: optimiser steps between validations; None: one epoch.
        save_every: seconds between checkpoints; every validation writes one, too.
        seed: seed of the initial weights, the order of the windows and dropout.
        precision: 32-true, 64-true, 16-mixed or bf16-mixed.
        accelerator: device type: cpu, gpu (cuda or mps), or auto.
        devices: processes per machine, one for each device; None: all GPUs, or as torchrun says.
        num_nodes: number of machines.
    """

    lr: PositiveFloat = 1e-3
    batch_size: PositiveInt | None = 100
    optimiser: Optimiser = "adam"
    weight_decay: NonNegativeFloat = 0.0
    alpha: NonNegativeFloat = 1.0
    clip: PositiveFloat | None = 1.0
    skip: Count = 0
    warmup: Below1 = 0.0
    schedule: Schedule = "constant"
    ema: Below1 | None = None
    jitter: NonNegativeFloat = 0.0
    augment: bool = False
    epochs: PositiveInt | None = None
    steps: PositiveInt | None = None
    max_time: str | None = None
    clock: Clock = "wall"
    validate_every: PositiveInt | None = None
    save_every: NonNegativeFloat = 300.0
    seed: Count = 0
    precision: Precision = "32-true"
    accelerator: Accelerator = "auto"
    devices: PositiveInt | None = None
    num_nodes: PositiveInt = 1

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for name, value in arguments(vars(self), hints).items():
            object.__setattr__(self, name, value)
        if self.max_time is not None:
            seconds(self.max_time)

    @property
    def batch(self) -> int:
        """The number of windows in a batch, where known or where a guess is enough."""
        return BATCH_WINDOWS if self.batch_size is None else self.batch_size

    def now(self) -> float:
        """The seconds of the clock, counted from an arbitrary moment."""
        return time.process_time() if self.clock == "cpu" else time.monotonic()

    def for_nodes(self, nodes: float) -> TrainingSettings:
        """The settings with a batch size, for windows with this many nodes on average."""
        if self.batch_size is not None:
            return self
        return replace(self, batch_size=max(1, min(BATCH_WINDOWS, round(BATCH_NODES / nodes))))


# The paper's settings, the defaults on its own tasks.
PAPER_TASKS = ("charged", "charged-noisy")
_SET = {"lr": 4.45e-5, "batch_size": 100}
PAPER: dict[str, dict[str, Any]] = {
    "set": _SET,
    "set-nonequivariant": _SET,
    "set-adjacency": _SET,
    "set-no-temporal": _SET,
    "lstm": {"lr": 2.47e-5, "batch_size": 32},
    "egnn": {"lr": 3.98e-5, "batch_size": 32},
    "mlp": {"lr": 1.75e-5, "batch_size": 100},
    "linear": {"lr": 2.73e-5, "batch_size": 100, "weight_decay": 1e-6},
}

_SHORT = {"lr": 1e-3, "batch_size": 100, "schedule": "cosine", "warmup": 0.05, "skip": 20}
_MOTION = {
    "lr": 1e-3,
    "batch_size": 250,
    "ema": 0.99,
    "schedule": "cosine",
    "warmup": 0.03,
    "skip": 5,  # single batches diverge early in training
}
# Our settings: for the paper's models with short budgets, and for our own models. Other presets
# use the defaults.
PRESET_SETTINGS: dict[str, dict[str, Any]] = dict.fromkeys(PAPER, _SHORT) | {
    "lstm": _SHORT | {"batch_size": 32},
    "egnn": _SHORT | {"batch_size": 32},
    "set-2": {
        "lr": 4e-3,
        "batch_size": None,
        "ema": 0.998,
        "jitter": 0.5,
        "schedule": "cosine",
        "warmup": 0.02,
        "skip": 20,
    },
    "set-flow": _MOTION,
    "hnn-pairs": _MOTION | {"lr": 4e-3},
    "hnn": _MOTION | {"lr": 2e-3, "batch_size": 100},
    "lnn": _MOTION | {"lr": 2e-3, "batch_size": 100},
    "segno": _MOTION | {"lr": 2e-3, "batch_size": 100},
    "transformer": {
        "lr": 4e-3,
        "batch_size": None,
        "ema": 0.998,
        "schedule": "cosine",
        "warmup": 0.02,
        "skip": 20,
        "augment": True,
    },
    "estag": {"lr": 3e-3, "batch_size": 20, "schedule": "cosine", "skip": 20},
    "tfn": _SHORT | {"lr": 1e-2},
    "se3-transformer": _SHORT | {"lr": 3e-3},
    "body": {"lr": 3e-3, "optimiser": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
}


_WITH_DROPOUT = ("set", "set-nonequivariant", "set-adjacency", "set-no-temporal", "lstm")


class PresetDefaults(NamedTuple):
    """Settings of a preset that differ from the defaults of the signatures."""

    training: dict[str, Any]
    model: dict[str, Any]


def preset_defaults(
    preset: str | None, task: str | None, which: Whose | None = None
) -> PresetDefaults:
    """How a preset is trained unless the user says otherwise.

    Args:
        preset: name of the preset, or the import path of a class; None: not known yet.
        task: name of the task; None: the user's own data, or not known yet.
        which: the paper's settings or ours; None: the paper's on its own tasks, else ours.
    """
    name = preset or ""
    ours = task not in PAPER_TASKS if which is None else which == "ours"
    if name in PAPER and not ours:
        return PresetDefaults(PAPER[name], {})
    model = {"dropout": 0.0} if name in _WITH_DROPOUT else {}
    return PresetDefaults(PRESET_SETTINGS.get(name, {}), model)


def seconds(text: str, name: str = "max_time") -> float:
    """Parse ``"90s"``, ``"1h30m"``, ``"2d"`` or ``"hh:mm:ss"``; `name` is for error messages."""
    clock = re.fullmatch(r"()(\d+):(\d\d):(\d\d)", text.strip())
    units = "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in "dhms")
    match = clock or re.fullmatch(units, text.strip())
    parts = match.groups() if match else ()
    total = sum(u * float(part or 0) for u, part in zip((86400, 3600, 60, 1), parts, strict=False))
    if not 0 < total < math.inf:
        raise InputError(
            f"{name}: expected a time such as 90s, 10m or 1h30m, found {shortened(text)}."
        )
    return total


@dataclass(frozen=True)
class Budget:
    """How long to train, and the learning rate as a function of the fraction used.

    Args:
        steps: number of optimiser steps; None: no limit.
        time: seconds by the clock of the settings; None: no limit.
        warmup, schedule: see :class:`TrainingSettings`.
    """

    steps: int | None
    time: float | None
    warmup: float
    schedule: Schedule

    @classmethod
    def from_settings(cls, settings: TrainingSettings, batches_per_epoch: int) -> Budget:
        """The budget that the settings ask for."""
        epochs = settings.epochs
        if (epochs, settings.steps, settings.max_time) == (None, None, None):
            epochs = DEFAULT_EPOCHS
        counts = [settings.steps, None if epochs is None else epochs * batches_per_epoch]
        steps = min((count for count in counts if count is not None), default=None)
        time = None if settings.max_time is None else seconds(settings.max_time)
        return cls(steps, time, settings.warmup, settings.schedule)

    def used(self, step: int, time: float) -> float:
        """The fraction used after this many steps and seconds; training ends when it reaches 1."""
        of_steps = 0.0 if self.steps is None else step / self.steps
        return max(of_steps, 0.0 if self.time is None else time / self.time)

    def lr_factor(self, used: float) -> float:
        """The factor on the learning rate when a fraction `used` of the budget is used."""
        if used < self.warmup:
            return used / self.warmup
        if self.schedule == "constant":
            return 1.0
        after = (used - self.warmup) / (1 - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
