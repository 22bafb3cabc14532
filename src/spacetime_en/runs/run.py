"""A run: a training in a folder, from its config to its checkpoints.

::

    runs/x/config.yaml                     every setting
    runs/x/run.json                        versions, machine, fingerprint and shape of the data
    runs/x/checkpoints/last.safetensors    where to continue (previous.safetensors: the one before)
    runs/x/checkpoints/best.safetensors    the one with the lowest validation error
    runs/x/model/                          the best model, for ``Forecaster.from_pretrained``
    runs/x/logs/                           TensorBoard and CSV
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError, without_password
from spacetime_en._util.files import inside, write_atomically, write_text_atomically
from spacetime_en._util.schema import check_format, read_json, read_text, typed
from spacetime_en.data import Task, Windows
from spacetime_en.data.leaks import hashes
from spacetime_en.facts import DataFacts
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import load_model
from spacetime_en.nn.presets import find_preset
from spacetime_en.nn.pretrained import SHELF, shipped
from spacetime_en.runs.checkpoints import (
    CheckpointOwner,
    read_checkpoint,
    read_progress,
    weights_in,
    write_checkpoint,
)
from spacetime_en.runs.config import Config, without_source
from spacetime_en.training.state import TrainingState

CONFIG_FILE, FACTS_FILE = "config.yaml", "run.json"
FACTS_FORMAT = 1
Notify = Callable[[str], None]  # shows the user a line


@dataclass
class _Facts:
    """The schema of ``run.json``, which may hold more."""

    data: DataFacts
    versions: dict[str, str]
    machine: dict[str, Any]
    command: list[str]


@dataclass(frozen=True)
class Run:
    """A training in a folder.

    Args:
        folder: the folder.
        config: every setting.
        facts: the content of ``run.json``: versions, machine, command, facts about the data.
    """

    folder: Path
    config: Config
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, trust: bool = False) -> Run:
        """Open a run, or a pretrained model shipped with the package.

        Args:
            folder: the folder of the run, or ``pretrained:NAME``.
            trust: allow the config to have its class imported and its data read. Otherwise the
                class must already be imported, and the data have been named by the user before.
        """
        folder = shipped(folder)
        config, facts = folder / CONFIG_FILE, folder / FACTS_FILE
        if not config.is_file() or not facts.is_file():
            raise InputError(
                f"{folder}: is no run (expected {CONFIG_FILE} and {FACTS_FILE} inside)."
            )
        text = read_text(inside(folder, config))
        entries = read_json(inside(folder, facts), dict[str, Any])
        check_format(entries.get("format", FACTS_FORMAT), FACTS_FORMAT, str(facts))
        typed(entries, _Facts, str(facts))  # or an error in one sentence
        return cls(folder, Config.from_yaml(text, str(config), trust=trust), entries)

    @property
    def is_shipped(self) -> bool:
        """Whether the run is shipped with the package: a model without checkpoints, read-only."""
        return self.folder.parent == SHELF

    @property
    def outputs(self) -> Path:
        """The folder for outputs: that of the run, or the working directory if it is shipped."""
        return Path() if self.is_shipped else self.folder

    def write(self) -> None:
        """Write the config and the facts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.folder / FACTS_FILE, json.dumps(self.facts, indent=2) + "\n")
        write_text_atomically(self.folder / CONFIG_FILE, self.config.to_yaml())

    @property
    def data(self) -> DataFacts:
        """Facts about the data that the model was trained on."""
        facts: DataFacts = typed(self.facts["data"], DataFacts, f"{self.folder / FACTS_FILE}: data")
        return facts

    def load_task(self, data: Path | None = None) -> Task:
        """The task that the run was trained on; `data` is the folder of its data, if moved."""
        if data is None:
            return self.check_data(self.config.task, self.config.load_task())
        if "data" not in self.config.task:
            raise InputError(f"data: {self.folder} was trained on the task {self.data.label!r}.")
        task = {**self.config.task, "data": str(data.resolve())}
        return dataclasses.replace(self.config, task=task, trusted=True).load_task()

    def check_data(self, source: Mapping[str, Any], task: Task) -> Task:
        """Return `task`, or raise if its data are not those that the run was trained on.

        Args:
            source: the section of a config by which `task` was opened.
            task: the task.
        """
        ours, theirs = (
            Path(entries["data"]).resolve() if entries.get("data") else None
            for entries in (self.config.task, source)
        )
        replaced = task.train.trajectories.fingerprint != self.data.trajectories
        if theirs is not None and theirs == ours and replaced:
            raise InputError(
                f"{source['data']}: holds other data than {self.folder} was trained on; put those "
                "back, or give these another name (--data)."
            )
        return task

    def seen_in_training(self, task: Task, split: str) -> list[str]:
        """A warning if windows of the split were used in training, as after a change of counts."""
        if split == "train" or task.fingerprint == self.facts["data"]["fingerprint"]:
            return []
        try:
            trained_on = self.load_task().train
        except InputError as error:
            return [f"whether the model was trained on these windows is not known: {error}"]

        def last_frames(windows: Windows) -> NDArray[np.int64]:
            seen_last = slice(windows.length - 1, windows.length)
            return hashes(windows, np.arange(len(windows)), seen_last)

        count = int(np.isin(last_frames(task.splits[split]), last_frames(trained_on)).sum())
        total = len(task.splits[split])
        return [f"{count} of these {total} windows were trained on."] if count else []

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """The path of a checkpoint: ``last``, ``previous`` or ``best``."""
        return inside(self.folder, self.folder / "checkpoints" / f"{name}.safetensors")

    def save(self, state: TrainingState, best: TrainingState | None = None) -> None:
        """Write `best`, if not None, as the best checkpoint, and `state` as the last."""
        last = self.checkpoint("last")
        last.parent.mkdir(parents=True, exist_ok=True)
        if best is not None:
            write_atomically(self.checkpoint("best"), lambda path: self._write(path, best))

        def write(path: Path) -> None:
            self._write(path, state)
            if last.exists():  # the new one is complete: only now may the old one be moved
                os.replace(last, self.checkpoint("previous"))

        write_atomically(last, write)

    def _write(self, path: Path, state: TrainingState) -> None:
        write_checkpoint(path, state, self._owner(state.progress.step))

    def _owner(self, step: int = 0) -> CheckpointOwner:
        config = self.config
        random = {"seed": config.training.seed, "step": step}
        data, task = self.data, without_source(config.task)
        facts = data.to_json() | {f"task.{name}": value for name, value in task.items()}
        return CheckpointOwner(config.preset, dict(config.model), data.fingerprint, random, facts)

    def load(self, name: str, model: Forecaster | None = None) -> TrainingState:
        """Read the state in a checkpoint, checked to be of this run's model and data.

        Args:
            name: ``last``, ``previous`` or ``best``.
            model: the model that it must fit.
        """
        return read_checkpoint(self.checkpoint(name), self._owner(), model)

    def newest(self, model: Forecaster, notify: Notify) -> TrainingState | None:
        """The state to continue from: the last checkpoint, or the one before if it is damaged."""
        state, wrong = None, []
        for name in ("last", "previous", "best"):
            if self.checkpoint(name).exists():
                try:
                    state = self.load(name, model)
                    break
                except InputError as error:
                    wrong.append(str(error))
        if wrong and state is None:
            raise InputError(f"{wrong[0]} No other checkpoint can be read; start a new run.")
        for sentence in wrong:
            notify(f"{sentence} Going back to an earlier checkpoint.")
        if state is not None and state.progress.best < math.inf:
            try:
                if self.load("best", model).progress.best == state.progress.best:
                    return state
                problem = f"{self.checkpoint('best')}: is not the best that the run has seen."
            except InputError as error:
                problem = str(error)
            notify(f"{problem} From here on the best is looked for anew.")
            state.progress.best = math.inf
        return state

    def model(self) -> Forecaster:
        """The best model of the run so far, ready to forecast."""
        path = self.checkpoint("best")
        if self.is_shipped:
            model = Forecaster.from_pretrained(self.folder / "model")
        elif path.is_file():
            read_progress(path, self._owner())  # rejects another run's checkpoint
            kind = find_preset(self.config.preset).model
            model = load_model(lambda: kind(**self.config.model), path, weights_in(path))
        else:
            raise InputError(
                f"{self.folder}: has no checkpoint yet; let it train up to its first validation."
            )
        model.trained_on = self.data
        return model


def environment() -> dict[str, Any]:
    """The environment of a result: versions, machine, command."""
    return {
        "versions": {
            "python": platform.python_version(),
            "spacetime_en": version("spacetime-en"),
            "torch": torch.__version__,
            "lightning": version("lightning"),
        },
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "flush_denormal": torch.tensor(1e-310, dtype=torch.float64).mul(1.0).item() == 0,
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "command": [without_password(word) for word in sys.argv[1:]],
    }


def learning_curve(folder: Path) -> list[tuple[int, float]]:
    """The steps and validation position MSEs in a run's CSV logs, of all its sessions."""
    errors: dict[int, float] = {}
    for number in range(1, 1 + len(list((folder / "logs").glob("sitting-*")))):
        path = folder / "logs" / f"sitting-{number}" / "metrics.csv"
        if path.exists():  # (a session that ended before its first validation has none)
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    if row.get("val_position_mse"):
                        errors[int(row["step"])] = float(row["val_position_mse"])
    return sorted(errors.items())
