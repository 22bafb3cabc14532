"""Train in a folder: prepare the run, fit the model, finish; resumable at any time."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError

from spacetime_en._util.errors import InputError, Interrupted
from spacetime_en._util.files import inside, locked, refuse_foreign, write_text_atomically
from spacetime_en._util.schema import Count, NonNegativeFloat, read_json, shortened
from spacetime_en._util.trust import named_object
from spacetime_en.data import Task
from spacetime_en.data.compatibility import facts_of
from spacetime_en.evaluation import mean_position_error
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.runs.config import SECTIONS, Config
from spacetime_en.runs.run import FACTS_FILE, FACTS_FORMAT, Notify, Run, environment
from spacetime_en.training.fitting import fit, mean_nodes
from spacetime_en.training.state import DivergenceError, TrainingProgress, TrainingState

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

DIVERGED_FILE = "diverged.json"
# Settings that may differ when a run is resumed.
MAY_CHANGE = ("epochs", "steps", "max_time", "save_every", "accelerator", "devices", "num_nodes")


@dataclass(frozen=True)
class Divergence:
    """The content of ``diverged.json``.

    Args:
        message: the sentence for the user.
        training_windows: indices of the windows in the batch.
        step: number of optimiser steps done.
        seconds: spent on them, by the clock of the settings.
    """

    message: str = ""
    training_windows: list[int] = field(default_factory=list)
    step: Count = 0
    seconds: NonNegativeFloat = 0.0


def read_divergence(folder: Path) -> Divergence | None:
    """How the training in a folder diverged; None if it did not."""
    path = inside(folder, folder / DIVERGED_FILE)
    return read_json(path, Divergence) if path.exists() else None


def train(
    config: Config,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    loggers: Sequence[str] = ("tensorboard", "csv"),
    callbacks: Sequence[Callback] = (),
    display: bool = True,
    notify: Notify = lambda text: print(text, file=sys.stderr),
    trust: bool = False,
    task: Task | None = None,
) -> Run:
    """Train as `config` says, in the folder `out`.

    Args:
        config: the preset, the task and all settings.
        out: the folder of the run; must not hold a run already, unless `resume`.
        resume: continue the run in `out` if there is one. Only the budget may change.
        loggers: ``tensorboard``, ``csv``, or import paths of other Lightning loggers.
        callbacks: Lightning callbacks.
        display: show the progress on standard error.
        notify: called with lines for the user.
        trust: whether the config of the run to resume is trusted, see :meth:`Run.open`.
        task: that of the config, if already loaded.
    """
    folder, first = Path(out), is_first_process()
    notify = notify if first else lambda text: None
    _check_free(folder, resume)
    for name in ("checkpoints", "logs", "model"):
        inside(folder, folder / name)
    # One training at a time; the processes of a distributed training count as one.
    with locked(folder) if first else nullcontext(lambda: None) as check_folder:
        _check_free(folder, resume)
        prepared = _prepare(config, folder, notify, trust, task)
        saver = _Saver(prepared.run, check_folder, notify)
        made_loggers = _loggers(loggers, folder) if first else []
        progress = _fit(prepared, saver, made_loggers, callbacks, display)
        _finish(prepared.run, progress, saver, notify)
        return prepared.run


def keep_untrained(config: Config, out: str | os.PathLike[str], task: Task) -> Run:
    """Create a run of a model with nothing to train, such as the straight line.

    Args:
        config: the preset, the task and all settings.
        out: the folder of the run.
        task: that of the config.
    """
    folder = Path(out)
    refuse_foreign(folder, "run", FACTS_FILE)
    with locked(folder):
        prepared = _prepare(config, folder, lambda text: None, trust=False, task=task)
        model, run = prepared.model, prepared.run
        error = mean_position_error(model, task.val, run.config.training.batch)
        state = TrainingState(TrainingProgress(best=error), dict(model.state_dict()))
        run.save(state, state)
        model.trained_on = run.data
        model.save_pretrained(folder / "model")
    return run


def is_first_process() -> bool:
    """Whether this process writes and prints, of those in a distributed training."""
    # As Lightning determines it, without importing Lightning.
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
    name = next((name for name in names if name in os.environ), None)
    if name is None:
        return True
    rank = os.environ[name]
    if not (rank.isascii() and rank.isdigit()):
        raise InputError(
            f"{name}: the environment has {shortened(rank)}, expected the number of a process; "
            "unset it to train with one."
        )
    return int(rank) == 0


def _check_free(folder: Path, resume: bool) -> None:
    """Refuse a folder with other contents, or a run that is not to be resumed."""
    if is_first_process():
        refuse_foreign(folder, "run", FACTS_FILE)
    if _has_checkpoints(folder) and not resume:
        raise InputError(
            f"{folder}: is a run already; resume it (--resume), choose another folder, or "
            "delete it."
        )


def _has_checkpoints(folder: Path) -> bool:
    """(A run without a checkpoint has nothing to lose.)"""
    return any((folder / "checkpoints").glob("*.safetensors"))


# --- prepare --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prepared:
    """A run written to its folder, and the state to continue from; None: initial weights."""

    run: Run
    task: Task
    model: Forecaster
    state: TrainingState | None


def _prepare(
    config: Config, folder: Path, notify: Notify, trust: bool, task: Task | None
) -> _Prepared:
    """Load the task, build the model, and open the run or write a new one."""
    task = config.load_task() if task is None else task
    torch.manual_seed(config.training.seed)
    model = config.build_model(task)
    facts = {"format": FACTS_FORMAT, **environment(), "data": facts_of(task).to_json()}
    training = config.training.for_nodes(mean_nodes(task))
    config = dataclasses.replace(config.resolved(model), training=training)
    run, state = Run(folder, config, facts), None
    if _has_checkpoints(folder):
        run = _with_new_budget(Run.open(folder, trust=trust), run)
        state = run.newest(model, notify)
        if state is not None:
            notify(f"{folder}: goes on at step {state.progress.step}.")
    if is_first_process():
        if state is None:  # remove the logs of an earlier attempt
            shutil.rmtree(folder / "logs", ignore_errors=True)
        (folder / DIVERGED_FILE).unlink(missing_ok=True)
        run.write()
    if task.problems:
        notify(f"warning: {task.label}")
    return _Prepared(run, task, model, state)


def _with_new_budget(old: Run, new: Run) -> Run:
    """The old run with the new budget; everything else must be the same."""
    if old.facts["data"]["fingerprint"] != new.facts["data"]["fingerprint"]:
        raise InputError(f"{old.folder}: its data have changed since it began; start a new run.")
    ours, theirs = (
        {f"{part}.{k}": v for part in SECTIONS for k, v in run.config.to_dict()[part].items()}
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


def _loggers(names: Sequence[str], folder: Path) -> list[Logger]:
    """Lightning loggers, with a new folder per session: they cannot append to old logs."""
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    logs = folder / "logs"
    sitting = 1 + len([p for p in logs.glob("*") if p.is_dir()])
    version = f"sitting-{sitting}"
    inside(folder, logs / version)
    loggers: list[Logger] = []
    for name in names:
        if name == "tensorboard":
            loggers.append(TensorBoardLogger(folder, name="logs", version=version))
        elif name == "csv":
            loggers.append(CSVLogger(folder, name="logs", version=version))
        else:
            try:
                loggers.append(named_object(name)(save_dir=folder))
            except InputError as error:
                raise InputError(f"loggers: {error}") from None
            except (TypeError, ImportError, ValueError) as error:
                raise InputError(f"loggers: {name} cannot be used ({error}).") from None
    return loggers


# --- fit ------------------------------------------------------------------------------------------


class _Saver:
    """Writes checkpoints. If one cannot be written, training goes on without it.

    Args:
        run: the run to write to.
        check_folder: raises an error if the folder of the run is gone.
        notify: called with a warning for every checkpoint that is lost.
    """

    def __init__(self, run: Run, check_folder: Callable[[], None], notify: Notify) -> None:
        self.run, self.check_folder, self.notify = run, check_folder, notify
        self.unsaved_best: TrainingState | None = None

    def __call__(self, state: TrainingState, is_best: bool) -> None:
        self.unsaved_best = state if is_best else self.unsaved_best
        self.check_folder()
        try:
            self.run.save(state, self.unsaved_best)
            self.unsaved_best = None
        except (OSError, SafetensorError) as error:
            self.notify(
                f"warning: the checkpoint of step {state.progress.step} could not be written "
                f"({error}); the one before it stays, and training goes on."
            )


def _fit(
    prepared: _Prepared,
    saver: _Saver,
    loggers: Sequence[Logger],
    callbacks: Sequence[Callback],
    display: bool,
) -> TrainingProgress:
    """Train the model; say how to continue if it diverges or is interrupted."""
    folder, first = prepared.run.folder, is_first_process()
    try:
        return fit(
            prepared.model,
            prepared.task,
            prepared.run.config.training,
            state=prepared.state,
            save=saver,
            loggers=loggers,
            callbacks=callbacks,
            display=display,
        )
    except DivergenceError as error:
        if not first:
            raise
        path = folder / DIVERGED_FILE
        done = error.progress
        known = Divergence(str(error), error.rows, done.step, done.time)
        write_text_atomically(path, json.dumps(dataclasses.asdict(known)))
        raise InputError(
            f"{error} The windows are listed in {path}; checkpoints are as they were before."
        ) from None
    except Interrupted:
        if not first:
            sys.exit(0)  # or Lightning, the parent of these processes, would also kill the first
        again = f"spacetime train --out {shlex.quote(str(folder))} --resume"
        raise Interrupted(f"stopped; go on with: {again}") from None


# --- finish ---------------------------------------------------------------------------------------


def _finish(run: Run, progress: TrainingProgress, saver: _Saver, notify: Notify) -> None:
    """Write the best model; warn of skipped steps, and of a network that adds nothing."""
    if progress.skipped:
        notify(
            f"warning: {progress.skipped} of {progress.step} steps diverged and were skipped; a "
            "lower learning rate may do better."
        )
    saver.check_folder()
    if not is_first_process():
        return
    try:
        if (best := saver.unsaved_best) is not None:
            run.save(best, best)
        model = run.model()
        model.save_pretrained(run.folder / "model")
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{run.folder}: the best model could not be written ({error}); make room, then resume "
            "the run (--resume)."
        ) from None
    if model.corrects_base and progress.best_step == 0:
        notify(
            f"{run.folder}: the network added nothing to its base ({model.base_name}) that the "
            "validation windows show, so the model makes the base's forecasts; more data, another "
            "rate or more time may change that."
        )
