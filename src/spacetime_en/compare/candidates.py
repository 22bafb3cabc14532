"""The models that can be compared on a task: those that fit its data, the cheapest first."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from spacetime_en._util.errors import InputError, in_short
from spacetime_en._util.threads import one_thread
from spacetime_en.data.task import Task
from spacetime_en.geometry import FULL_SYMMETRY, Symmetries
from spacetime_en.nn.forecaster import ClosedForm
from spacetime_en.nn.presets import PRESETS, find_preset
from spacetime_en.runs.config import Config
from spacetime_en.training.fitting import mean_nodes
from spacetime_en.training.settings import TrainingSettings, preset_defaults

FitKind = Literal["trivial", "solved", "trained"]
KINDS: tuple[FitKind, ...] = ("trivial", "solved", "trained")  # the cheapest first
PROBED = 2  # windows of each split that a model must be able to forecast


@dataclass(frozen=True)
class Candidate:
    """A model that fits the data.

    Args:
        preset: its name, or the import path of its class.
        kind: whether it has nothing to train, is solved in closed form, or trained.
        parameters: how many numbers are trained or solved for.
        symmetries: of the architecture, and those that its training teaches it.
        augment: whether its training rotates and reflects windows at random.
    """

    preset: str
    kind: FitKind
    parameters: int
    symmetries: Symmetries = FULL_SYMMETRY
    augment: bool = False

    @property
    def file_name(self) -> str:
        """Its name in file names."""
        plain = "".join(c if c.isalnum() or c == "-" else "_" for c in self.preset)
        # (The names of a.b_c and a_b.c would be the same.)
        return plain if plain == self.preset else f"{plain}-{zlib.crc32(self.preset.encode()):08x}"


@one_thread()
def find_candidates(
    task: Task, source: Mapping[str, Any], presets: Sequence[str], *, augment: bool = True
) -> tuple[list[Candidate], dict[str, str]]:
    """The models that fit a task, the cheapest first, and why the others do not.

    A model fits if it can be built for the training windows, and forecasts some of these and of
    the validation windows. The test windows are not read.

    Args:
        task: the task.
        source: the section of a config that it was loaded from.
        presets: names to choose from; none: all.
        augment: see `config_of`.
    Returns: the candidates, and for each other preset the reason, by name.
    """
    for preset in presets:
        find_preset(preset)  # rejects unknown names
    same = Counter(preset.replace(":", ".") for preset in presets)  # a:B is a.B
    if twice := [name for name, count in same.items() if count > 1]:
        raise InputError(f"preset: {twice[0]!r} is named twice; name it once.")
    found, reasons = [], {}
    for preset in presets or PRESETS:
        try:
            found.append(_probed(preset, task, source, augment))
        except Exception as error:  # any error raised by a user's class
            reasons[preset] = in_short(error)
    if not found:
        preset, why = next(iter(reasons.items()))
        raise InputError(f"preset: none of these models fits the data ({preset}: {why}).")
    found.sort(key=lambda candidate: (KINDS.index(candidate.kind), candidate.parameters))
    return found, reasons


def config_of(
    preset: str, task: Task, source: Mapping[str, Any], seed: int = 0, *, augment: bool
) -> Config:
    """The config of a preset in a comparison, before its budget and learning rate are known.

    The settings are ours, for short budgets, even on the paper's own tasks. Whatever the unit of
    the budget, the cost of training is measured in processor time.

    Args:
        augment: use random rotations for presets that train with them; not where directions matter.
    """
    defaults = preset_defaults(preset, source.get("name"), "ours")
    given = {**defaults.training, "seed": seed, "devices": 1, "clock": "cpu"}
    training = TrainingSettings(**given)
    training = replace(training, augment=training.augment and augment)
    return Config(preset, defaults.model, source, training.for_nodes(mean_nodes(task)))


def _probed(preset: str, task: Task, source: Mapping[str, Any], augment: bool) -> Candidate:
    config = config_of(preset, task, source, augment=augment)
    model = config.build_model(task).eval()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    with torch.no_grad():
        for windows in (task.train, task.val):
            graph, _ = windows.sample(PROBED)
            model(graph.to(torch.device("cpu"), dtype))
    count = sum(p.numel() for p in model.parameters())
    known = model.symmetries
    if isinstance(model, ClosedForm):
        return Candidate(preset, "solved", count, known)
    if config.training.augment:
        known = known._replace(rotation=True)
    trains = any(p.requires_grad for p in model.parameters())
    kind: FitKind = "trained" if trains else "trivial"
    return Candidate(preset, kind, count, known, config.training.augment)
