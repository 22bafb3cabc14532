"""How a model is trained: optimiser, budget, machine."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, NotNegative, Positive, Scale, arguments, shortened

Optimiser = Literal["adam", "adamw"]
Schedule = Literal["constant", "cosine"]
Clock = Literal["wall", "cpu"]
Precision = Literal["32-true", "64-true", "16-mixed", "bf16-mixed"]
Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps"]
Below1 = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]

DEFAULT_EPOCHS = 100  # if no budget is given


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained. Of several budgets, the one used up first ends the training.

    Args:
        lr: learning rate.
        batch_size: windows in a step, those of all processes together.
        optimiser: adam, or adamw (decoupled weight decay).
        weight_decay: of the optimiser.
        alpha: weight of the velocities in the loss, Eq. 13.
        clip: longest gradient; longer ones are shortened to it. None: never.
        skip: how many steps in a row may blow up (a loss that is not finite or far above the
            first, a gradient that is not finite) and are left out, before training counts as
            diverged.
        warmup: share of the budget over which the learning rate rises from 0.
        schedule: of the learning rate after warm-up: constant, or cosine (down to 0 at the end).
        ema: decay of an exponential average of the weights, such as 0.999, which is then what is
            validated and kept. None: no average.
        epochs: budget in passes over the training windows (100 if no budget is given).
        steps: budget in steps of the optimiser.
        max_time: budget in time, validation included, such as 90s, 10m, 1h30m.
        clock: of max_time: wall, or cpu, the processor time of this process (of all its threads),
            which is fair among trainings that share a machine.
        validate_every: steps between validations; None: one epoch.
        save_every: seconds between checkpoints; there is one after every validation as well.
        seed: of the weights, the order of the windows and dropout.
        precision: 32-true, 64-true, 16-mixed or bf16-mixed.
        accelerator: cpu, gpu, mps, or auto.
        devices: processes on each machine, one a device; None: all GPUs, or what torchrun says.
        num_nodes: machines.
    """

    lr: Scale = 1e-3
    batch_size: Positive = 100
    optimiser: Optimiser = "adam"
    weight_decay: NotNegative = 0.0
    alpha: NotNegative = 1.0
    clip: Scale | None = 1.0
    skip: Count = 0
    warmup: Below1 = 0.0
    schedule: Schedule = "constant"
    ema: Below1 | None = None
    epochs: Positive | None = None
    steps: Positive | None = None
    max_time: str | None = None
    clock: Clock = "wall"
    validate_every: Positive | None = None
    save_every: NotNegative = 300.0
    seed: Count = 0
    precision: Precision = "32-true"
    accelerator: Accelerator = "auto"
    devices: Positive | None = None
    num_nodes: Positive = 1

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for name, value in arguments(vars(self), hints).items():
            object.__setattr__(self, name, value)
        if self.max_time is not None:
            seconds(self.max_time)


# The paper's; what is not named is a default.
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

_FLOW = {
    "lr": 1e-3,
    "batch_size": 250,
    "ema": 0.99,
    "schedule": "cosine",
    "warmup": 0.03,
    "skip": 5,  # single batches still blow up while the law is young
}
# Of all presets that have settings of their own: the paper's, and ours for models of ours.
PRESET_SETTINGS: dict[str, dict[str, Any]] = PAPER | {
    "set-flow": _FLOW,
    "set-flow-ensemble": _FLOW | {"lr": 3e-3, "batch_size": 64},
    "estag": {"lr": 3e-3, "batch_size": 20, "schedule": "cosine", "skip": 20},
    "body": {"lr": 3e-3, "optimiser": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
}


def seconds(text: str, name: str = "max_time") -> float:
    """``"90s"``, ``"10m"``, ``"1h30m"``, ``"2d"`` or ``"hh:mm:ss"`` in seconds.

    Args:
        text: the time.
        name: of the setting, which begins the sentence if it is none.
    """
    parts = re.fullmatch(
        r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?",
        text.strip(),
    )
    clock = re.fullmatch(r"(\d+):(\d\d):(\d\d)", text.strip())
    if clock:
        h, m, s = map(int, clock.groups())
        total: float = 3600 * h + 60 * m + s
    elif parts and any(parts.groups()):
        units = (86400, 3600, 60, 1)
        total = sum(u * float(part or 0) for u, part in zip(units, parts.groups(), strict=True))
    else:
        total = 0.0
    if not 0 < total < math.inf:
        raise InputError(
            f"{name}: expected a time such as 90s, 10m or 1h30m, found {shortened(text)}."
        )
    return total


@dataclass(frozen=True)
class Budget:
    """How long to train, and the learning rate that goes with how much of it is used.

    Args:
        steps: of the optimiser, or None.
        time: seconds of the clock that was asked for, or None.
        warmup, schedule: see :class:`TrainingSettings`.
    """

    steps: int | None
    time: float | None
    warmup: float
    schedule: Schedule

    @classmethod
    def of(cls, settings: TrainingSettings, batches: int) -> Budget:
        """The budget of a training whose epochs have so many batches."""
        epochs = settings.epochs
        if (epochs, settings.steps, settings.max_time) == (None, None, None):
            epochs = DEFAULT_EPOCHS
        counts = [settings.steps, None if epochs is None else epochs * batches]
        steps = min((count for count in counts if count is not None), default=None)
        time = None if settings.max_time is None else seconds(settings.max_time)
        return cls(steps, time, settings.warmup, settings.schedule)

    def used(self, step: int, time: float) -> float:
        """The share that is used after so many steps and seconds; from 1 on it is over."""
        shares = [0.0]
        if self.steps is not None:
            shares.append(step / self.steps)
        if self.time is not None:
            shares.append(time / self.time)
        return max(shares)

    def factor(self, used: float) -> float:
        """What the learning rate is multiplied with."""
        if used < self.warmup:
            return used / self.warmup
        if self.schedule == "constant":
            return 1.0
        after = (used - self.warmup) / (1 - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
