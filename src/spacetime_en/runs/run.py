"""A run: a training in a folder, from its config to its checkpoints.

::

    runs/x/config.yaml                     every setting
    runs/x/run.json                        versions, machine, fingerprint and shape of the data
    runs/x/checkpoints/last.safetensors    where to go on (and previous.safetensors before it)
    runs/x/checkpoints/best.safetensors    the lowest validation error
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
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from numpy.typing import NDArray
from safetensors import SafetensorError

from spacetime_en._util.errors import InputError, Interrupted
from spacetime_en._util.files import alone, inside, write_atomically
from spacetime_en._util.schema import check_format, read_json, read_text, typed
from spacetime_en._util.trust import named_object
from spacetime_en.data import Task, Windows
from spacetime_en.data.compatibility import facts_of
from spacetime_en.data.leaks import hashes
from spacetime_en.facts import DataFacts
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.loading import load
from spacetime_en.nn.presets import find_preset
from spacetime_en.nn.pretrained import SHELF, shipped
from spacetime_en.runs.checkpoints import (
    Belonging,
    read_checkpoint,
    read_progress,
    weights_in,
    write_checkpoint,
)
from spacetime_en.runs.config import Config
from spacetime_en.training import DivergenceError, State, fit

CONFIG, FACTS = "config.yaml", "run.json"
FORMAT = 1  # of run.json
MAY_CHANGE = ("epochs", "steps", "max_time", "save_every", "accelerator", "devices", "num_nodes")
Tell = Callable[[str], None]


@dataclass
class _Facts:
    """The shape of ``run.json``; more may stand there."""

    data: DataFacts
    versions: dict[str, str]
    machine: dict[str, Any]
    command: list[str]


@dataclass(frozen=True)
class Run:
    """A training in a folder.

    Args:
        folder: where.
        config: every setting.
        facts: what else is known: versions, machine, the data.
    """

    folder: Path
    config: Config
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, trust: bool = False) -> Run:
        """A run that exists, or what is left of one that comes with the package.

        Args:
            folder: of the run, or ``pretrained:NAME``.
            trust: import the class and read the data that its config names. Without it, a class
                must be imported already, and data have been named by the user before.
        """
        folder = shipped(folder)
        config, facts = folder / CONFIG, folder / FACTS
        if not config.is_file() or not facts.is_file():
            raise InputError(f"{folder}: is no run (expected {CONFIG} and {FACTS} inside).")
        text = read_text(inside(folder, config))
        known = read_json(inside(folder, facts), dict[str, Any])
        check_format(known.get("format", FORMAT), FORMAT, str(facts))
        typed(known, _Facts, str(facts))  # or a sentence
        return cls(folder, Config.from_yaml(text, str(config), trust=trust), known)

    @property
    def is_shipped(self) -> bool:
        """Whether the run came with the package: a model without checkpoints, not to write to."""
        return self.folder.parent == SHELF

    @property
    def outputs(self) -> Path:
        """Where what is made of the run goes: its folder, or here if it came with the package."""
        return Path() if self.is_shipped else self.folder

    def write(self) -> None:
        """Write the config and the facts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = json.dumps(self.facts, indent=2) + "\n"
        write_atomically(self.folder / FACTS, lambda path: path.write_text(facts))
        write_atomically(self.folder / CONFIG, lambda path: path.write_text(self.config.to_yaml()))

    @property
    def data(self) -> DataFacts:
        """What the model was trained on."""
        made: DataFacts = typed(self.facts["data"], DataFacts, f"{self.folder / FACTS}: data")
        return made

    def load_task(self, data: Path | None = None) -> Task:
        """The task that the run was trained on.

        Args:
            data: the folder of its data, if they are not where they were.
        """
        if data is None:
            return self.check_data(self.config.task, self.config.load_task())
        if "data" not in self.config.task:
            raise InputError(f"data: {self.folder} was trained on the task {self.data.label!r}.")
        task = {**self.config.task, "data": str(data.resolve())}
        return dataclasses.replace(self.config, task=task, trusted=True).load_task()

    def check_data(self, source: Mapping[str, Any], task: Task) -> Task:
        """Refuse a task whose data come from the run's own folder, but were replaced since.

        Args:
            source: the entries of a config that `task` was opened by.
            task: which is also returned.
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
        """A warning if windows to be judged by were trained on, as after a change of counts."""
        if split == "train" or task.fingerprint == self.facts["data"]["fingerprint"]:
            return []
        try:
            own = self.load_task().train
        except InputError as error:
            return [f"whether the model was trained on these windows is not known: {error}"]

        def first_frames(windows: Windows) -> NDArray[np.int64]:
            return hashes(windows, np.arange(len(windows)), slice(0, 1))

        count = int(np.isin(first_frames(task.splits[split]), first_frames(own)).sum())
        total = len(task.splits[split])
        return [f"{count} of these {total} windows were trained on."] if count else []

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """The path of a checkpoint: ``last``, ``previous`` or ``best``."""
        return inside(self.folder, self.folder / "checkpoints" / f"{name}.safetensors")

    def save(self, state: State, best: State | None = None) -> None:
        """Write `best` as the best checkpoint, if there is a new one, and `state` as the last."""
        last = self.checkpoint("last")
        last.parent.mkdir(parents=True, exist_ok=True)
        if best is not None:
            write_atomically(self.checkpoint("best"), lambda path: self._write(path, best))

        def write(path: Path) -> None:
            self._write(path, state)
            if last.exists():  # the new one is whole: only now may the old one move
                os.replace(last, self.checkpoint("previous"))

        write_atomically(last, write)

    def _write(self, path: Path, state: State) -> None:
        write_checkpoint(path, state, self._belonging(state.progress.step))

    def _belonging(self, step: int = 0) -> Belonging:
        config = self.config
        random = {"seed": config.training.seed, "step": step}
        return Belonging(config.preset, dict(config.model), self.data.fingerprint, random)

    def load(self, name: str, model: Forecaster | None = None) -> State:
        """The state in a checkpoint, checked to be of this run's model and data.

        Args:
            name: ``last``, ``previous`` or ``best``.
            model: in which it must fit.
        """
        return read_checkpoint(self.checkpoint(name), self._belonging(), model)

    def newest(self, model: Forecaster, tell: Tell) -> State | None:
        """Where to go on: the last checkpoint, or an earlier one if that cannot be read."""
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
            tell(f"{sentence} Going back to an earlier checkpoint.")
        if state is not None and state.progress.best < math.inf:
            try:
                if self.load("best", model).progress.best == state.progress.best:
                    return state
                problem = f"{self.checkpoint('best')}: is not the best that the run has seen."
            except InputError as error:
                problem = str(error)
            tell(f"{problem} From here on the best is looked for anew.")
            state.progress.best = math.inf
        return state

    def model(self) -> Forecaster:
        """The best model of the run so far, ready to forecast."""
        model = self._model()
        model.trained_on = self.data
        return model

    def _model(self) -> Forecaster:
        if self.is_shipped:
            return Forecaster.from_pretrained(self.folder / "model")
        if not self.checkpoint("best").is_file():
            raise InputError(
                f"{self.folder}: has no checkpoint yet; let it train up to its first validation."
            )
        path = self.checkpoint("best")
        read_progress(path, self._belonging())  # or say what it belongs to
        kind = find_preset(self.config.preset).model
        return load(lambda: kind(**self.config.model), path, weights_in(path))


def train(
    config: Config,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    loggers: Sequence[str] = ("tensorboard", "csv"),
    callbacks: Sequence[Callback] = (),
    display: bool = True,
    tell: Tell = lambda text: print(text, file=sys.stderr),
    trust: bool = False,
) -> Run:
    """Train as `config` says, in the folder `out`.

    Args:
        config: what and how.
        out: the folder of the run; must not be a run already, unless `resume`.
        resume: go on with the run in `out` if there is one. The budget may be another one.
        loggers: ``tensorboard``, ``csv``, or import paths of Lightning's other loggers.
        callbacks: Lightning's.
        display: show how it goes.
        tell: called with what the user should know.
        trust: of the run to resume, see :meth:`Run.open`.
    """
    folder = Path(out)
    tell = tell if is_first_process() else lambda text: None
    _check_free(folder, resume)
    # One process at a time, and those that train together with it.
    for name in ("checkpoints", "logs", "model"):
        inside(folder, folder / name)
    with alone(folder) if is_first_process() else nullcontext(lambda: None) as check_folder:
        _check_free(folder, resume)
        return _train(
            config,
            folder,
            loggers,
            callbacks,
            display,
            tell,
            check_folder=check_folder,
            trust=trust,
        )


def _check_free(folder: Path, resume: bool) -> None:
    """Refuse a folder of something else, and a run that is not to be resumed."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; choose another name for the run's folder.")
    if is_first_process() and folder.exists() and not (folder / FACTS).exists():
        others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if others:
            raise InputError(
                f"{folder}: holds {others[0]}, and is no run; choose another folder for the run."
            )
    if _has_checkpoints(folder) and not resume:
        raise InputError(
            f"{folder}: is a run already; resume it (--resume), choose another folder, or "
            "delete it."
        )


def _has_checkpoints(folder: Path) -> bool:
    """(A run without a checkpoint has nothing to lose.)"""
    return any((folder / "checkpoints").glob("*.safetensors"))


def _train(
    config: Config,
    folder: Path,
    loggers: Sequence[str],
    callbacks: Sequence[Callback],
    display: bool,
    tell: Tell,
    *,
    check_folder: Callable[[], None],
    trust: bool,
) -> Run:
    """See :func:`train`; `check_folder` raises an error if the folder is gone."""
    first = is_first_process()
    task = config.load_task()
    torch.manual_seed(config.training.seed)
    model = config.build_model(task)
    resolved = config.resolved(model)
    facts = {"format": FORMAT, **environment(), "data": facts_of(task).to_json()}
    run = Run(folder, resolved, facts)
    state = None
    if _has_checkpoints(folder):
        run = _continued(Run.open(folder, trust=trust), run)
        state = run.newest(model, tell)
        if state is not None:
            tell(f"{folder}: goes on at step {state.progress.step}.")
    if first:
        if state is None:  # what an earlier attempt left is not this run's
            shutil.rmtree(folder / "logs", ignore_errors=True)
        (folder / "diverged.json").unlink(missing_ok=True)
        run.write()
    if task.problems:
        tell(f"warning: {task.label}")

    pending: State | None = None  # the best, until it is on disk

    def keep(state: State, best: bool) -> None:
        nonlocal pending
        pending = state if best else pending
        check_folder()
        try:
            run.save(state, pending)
            pending = None
        except (OSError, SafetensorError) as error:
            tell(
                f"warning: the checkpoint of step {state.progress.step} could not be written "
                f"({error}); the one before it stays, and training goes on."
            )

    try:
        progress = fit(
            model,
            task,
            config.training,
            state=state,
            keep=keep,
            loggers=_loggers(loggers, folder) if first else (),
            callbacks=callbacks,
            display=display,
        )
    except DivergenceError as error:
        if first:
            path = folder / "diverged.json"
            rows = json.dumps({"message": str(error), "training_windows": error.rows})
            write_atomically(path, lambda path: path.write_text(rows))
            raise InputError(
                f"{error} The windows are listed in {path}; checkpoints are as they were before."
            ) from None
        raise
    except Interrupted:
        if not first:
            sys.exit(0)  # or Lightning, whose children these are, kills the first process as well
        again = f"spacetime train --out {shlex.quote(str(folder))} --resume"
        raise Interrupted(f"stopped; go on with: {again}") from None
    if progress.skipped:
        tell(
            f"warning: {progress.skipped} of {progress.step} steps blew up and were skipped; a "
            "lower learning rate may do better."
        )
    check_folder()
    if first and pending is not None:  # the last chance, and now it may well be an error
        _or_no_space(folder, lambda: run.save(pending, pending))
    if first:
        _or_no_space(folder, lambda: run.model().save_pretrained(folder / "model"))
    return run


def _or_no_space(folder: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{folder}: the best model could not be written ({error}); make room, then resume the "
            "run (--resume)."
        ) from None


def is_first_process() -> bool:
    """Whether this is the process that writes and speaks, of those that train together."""
    return getattr(rank_zero_only, "rank", 0) == 0


def _continued(old: Run, new: Run) -> Run:
    """The run with a new budget; anything else must be as it was."""
    if old.facts["data"]["fingerprint"] != new.facts["data"]["fingerprint"]:
        raise InputError(f"{old.folder}: its data have changed since it began; start a new run.")
    ours, theirs = (
        {f"model.{k}": v for k, v in run.config.model.items()}
        | {f"task.{k}": v for k, v in run.config.task.items()}
        | {f"training.{k}": v for k, v in dataclasses.asdict(run.config.training).items()}
        | {"preset": run.config.preset}
        for run in (new, old)
    )
    for key in sorted(ours.keys() | theirs.keys()):
        here, there = (json.loads(json.dumps(s.get(key), default=str)) for s in (ours, theirs))
        if here != there and key.removeprefix("training.") not in MAY_CHANGE:
            raise InputError(
                f"{old.folder}: began with {key} = {there}, now it is {here}; only the budget may "
                "change, start a new run for anything else."
            )
    return dataclasses.replace(old, config=new.config)


def environment() -> dict[str, Any]:
    """What a number was made with: versions, machine, command."""
    return {
        "versions": {
            "python": platform.python_version(),
            **{
                name: import_module(name).__version__
                for name in ("spacetime_en", "torch", "lightning")
            },
        },
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "flush_denormal": torch.tensor(1e-310, dtype=torch.float64).mul(1.0).item() == 0,
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "command": sys.argv[1:],
    }


def learning_curve(folder: Path) -> list[tuple[int, float]]:
    """Steps and validation position MSEs of a run with CSV logs, through all its sittings."""
    found: dict[int, float] = {}
    for number in range(1, 1 + len(list((folder / "logs").glob("sitting-*")))):
        path = folder / "logs" / f"sitting-{number}" / "metrics.csv"
        if path.exists():  # (a sitting that ended before its first validation has none)
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    if row.get("val_position_mse"):
                        found[int(row["step"])] = float(row["val_position_mse"])
    return sorted(found.items())


def _loggers(names: Sequence[str], folder: Path) -> list[Logger]:
    """One folder of logs for each sitting: loggers do not append to what an earlier one wrote."""
    logs = folder / "logs"
    sitting = 1 + len([p for p in logs.glob("*") if p.is_dir()])
    version = f"sitting-{sitting}"
    inside(folder, logs / version)
    made: list[Logger] = []
    for name in names:
        if name == "tensorboard":
            made.append(TensorBoardLogger(folder, name="logs", version=version))
        elif name == "csv":
            made.append(CSVLogger(folder, name="logs", version=version))
        else:
            try:
                made.append(named_object(name)(save_dir=folder))
            except InputError as error:
                raise InputError(f"loggers: {error}") from None
            except (TypeError, ImportError, ValueError) as error:
                raise InputError(f"loggers: {name} cannot be used ({error}).") from None
    return made
