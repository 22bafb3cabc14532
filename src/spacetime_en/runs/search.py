"""Search for good settings with Optuna: any number of processes can work on one study."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import optuna
import torch
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import (
    JournalFileBackend,
    JournalFileSymlinkLock,
    JournalRedisBackend,
)
from optuna.trial import TrialState
from sqlalchemy.exc import IntegrityError

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.files import lives, write_atomically
from spacetime_en._util.schema import check_no_link, open_regular, reason
from spacetime_en._util.threads import one_thread
from spacetime_en.data import Task
from spacetime_en.runs.config import Config, settings_of
from spacetime_en.training.batches import derive_seed
from spacetime_en.training.fitting import fit
from spacetime_en.training.module import DivergenceError
from spacetime_en.training.settings import TrainingSettings, seconds

BEST = "best.yaml"
JOURNAL = "study.journal"
CREATE_STUDY = 0  # what the first entry of a journal does
MOST_FAILURES = 5
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Dimension:
    """One setting that is varied.

    Args:
        name: as on the command line: ``lr``, ``model.hidden``, ``task.noise``.
        low, high: of a range; whole numbers give whole numbers.
        log: draw the logarithm evenly.
        choices: or what to choose from.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """From ``NAME=LOW:HIGH``, ``NAME=LOW:HIGH:log`` or ``NAME=A,B,C``."""
        name, equals, values = text.partition("=")
        wrong = InputError(
            f"space: expected NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C, found {text!r}."
        )
        if not (name and equals and values):
            raise wrong
        if ":" not in values:
            return cls(name, choices=tuple(values.split(",")))
        low, high, *rest = values.split(":")
        try:
            bounds = [int(b) if b.lstrip("-").isdigit() else float(b) for b in (low, high)]
        except ValueError:
            raise wrong from None
        if rest not in ([], ["log"]) or not bounds[0] < bounds[1] or (rest and bounds[0] <= 0):
            raise wrong
        return cls(name, bounds[0], bounds[1], log=bool(rest))

    def suggest(self, trial: optuna.Trial) -> Any:
        """A value for this trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.name, self.low, self.high, log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)


@one_thread()
def search(
    config: Config,
    out: str | os.PathLike[str],
    *,
    trials: int = 20,
    timeout: str | None = None,
    storage: str | None = None,
    name: str = "spacetime",
    space: Sequence[str] = ("lr=1e-5:1e-2:log",),
    tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Config:
    """Train with settings that Optuna suggests, until the study has enough trials.

    Each trial trains by the budget of `config`, with the same seed; what counts is the lowest
    validation position MSE. Trials that fall behind the median of the others at the same share of
    the budget are ended early. Run it again, or elsewhere at the same time, to go on. It computes
    with one thread: more cores are for more workers.

    Args:
        config: what does not vary.
        out: folder for ``best.yaml``, a config that ``spacetime train`` takes, and for the study.
        trials: how many finished trials the study shall have, whoever makes them.
        timeout: start no trial after this time, such as ``"2h"``.
        storage: an Optuna storage URL; None: a file in `out`.
        name: of the study.
        space: what to vary, see :meth:`Dimension.parse`.
        tell: called with a line for every trial.
    Returns: the best config.
    """
    # One worker, one device; for more devices there are more workers.
    config = dataclasses.replace(
        config, training=dataclasses.replace(config.training, devices=1, num_nodes=1)
    )
    dimensions = [Dimension.parse(text) for text in space]
    for dimension in dimensions:
        for value in dimension.choices or (dimension.low, dimension.high):
            _with(config, {dimension.name: value})  # or say what is wrong before the first trial
    names = [dimension.name for dimension in dimensions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"space: {twice!r} is there twice.")
    if trials < 1:
        raise InputError(f"trials: expected a positive whole number, found {trials!r}.")
    until = float("inf") if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with _readable(storage, folder):
        study = _join(_open(storage, folder), name, config.training.seed)
        _check_question(study, config, sorted(space))
        for complete in study.get_trials(states=(TrialState.COMPLETE,), deepcopy=False):
            float(complete.values[0])  # or the best is looked for in vain, after the next trial
    loaded = None if any(d.name.startswith("task.") for d in dimensions) else config.load_task()
    failures = 0
    while _count(study) < trials and time.monotonic() < until:
        trial = study.ask()
        try:
            trial.set_user_attr("worker", _worker())
            own = _with(config, {d.name: d.suggest(trial) for d in dimensions})
            value = _train(own, loaded, trial)
            study.tell(trial, value)
            outcome = f"{value:.4g}"
        except (optuna.TrialPruned, DivergenceError) as stop:
            study.tell(trial, state=TrialState.PRUNED)
            outcome = "diverged" if isinstance(stop, DivergenceError) else "pruned"
        except InputError as error:  # this combination of settings cannot be
            study.tell(trial, state=TrialState.FAIL)
            outcome, failures = str(error), failures + 1
            if failures >= MOST_FAILURES:
                raise
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise
        values = ", ".join(f"{k} {_brief(v)}" for k, v in trial.params.items())
        line = f"trial {trial.number + 1} of {trials}: {values}: {outcome}"
        if _completed(study):
            _write_best(config, study, folder)
            line += f" (best {study.best_value:.4g}, trial {study.best_trial.number + 1})"
        tell(line)
    if not _completed(study):
        raise InputError(
            "search: no trial was finished; give it more time or trials, or a space in which "
            "training does not diverge."
        )
    return _write_best(config, study, folder)


def _train(config: Config, loaded: Task | None, trial: optuna.Trial) -> float:
    """One trial: the lowest validation error."""
    task = config.load_task() if loaded is None else loaded
    torch.manual_seed(config.training.seed)
    model = config.build_model(task)
    settings = _validating(config.training, len(task.train))
    return fit(model, task, settings, callbacks=[_Pruning(trial)], display=False).best


def _check_question(study: optuna.Study, config: Config, space: list[str]) -> None:
    """Refuse to join a study that asks something else."""
    asked = {"config": config.to_yaml().splitlines(), "space": space}
    known = study.user_attrs.get("question")
    if known is None:
        study.set_user_attr("question", asked)
    elif known != asked:
        lines = [a for a in known["config"] + known["space"] if a not in asked["config"] + space]
        raise InputError(
            f"study: {study.study_name!r} was begun with other settings "
            f"({', '.join(line.strip() for line in lines[:3]) or 'fewer'}); choose another folder "
            "or name, or give the same."
        )


def _completed(study: optuna.Study) -> bool:
    return bool(study.get_trials(states=(TrialState.COMPLETE,), deepcopy=False))


def _write_best(config: Config, study: optuna.Study, folder: Path) -> Config:
    best = _with(config, study.best_params)
    best = dataclasses.replace(best, training=dataclasses.replace(best.training, devices=None))
    write_atomically(folder / BEST, lambda path: path.write_text(best.to_yaml()))
    return best


class _Pruning(pl.Callback):
    """Reports every validation, and ends the trial if it falls behind."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.tenth = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # By tenths of the budget, so that trials with other batch sizes or speeds compare.
        tenth = int(10 * pl_module.used + 1e-9)
        if tenth > self.tenth:
            self.tenth = tenth
            self.trial.report(pl_module.validation["position_mse"], tenth)
            if tenth < 10 and self.trial.should_prune():
                raise optuna.TrialPruned


def _validating(settings: TrainingSettings, windows: int) -> TrainingSettings:
    """About ten validations in a trial, or there is nothing to prune by."""
    if settings.validate_every is not None:
        return settings
    epoch = -(-windows // settings.batch_size)
    total = settings.steps or (settings.epochs or 10) * epoch
    return dataclasses.replace(settings, validate_every=max(1, min(epoch, total // 10)))


def _with(config: Config, values: dict[str, Any]) -> Config:
    """The config with some settings replaced, by their names on the command line; checked."""
    sections: dict[str, Any] = {
        "model": dict(config.model),
        "task": dict(config.task),
        "training": dataclasses.asdict(config.training),
    }
    kinds = settings_of(config.preset, config.task)
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        section = section or "training"
        known = [f.name for f in dataclasses.fields(kinds[section])] if section in kinds else []
        if key.replace("-", "_") not in known:
            options = [
                f.name if part == "training" else f"{part}.{f.name}"
                for part, kind in kinds.items()
                for f in dataclasses.fields(kind)
            ]
            raise InputError(f"space: {no_such('setting', name, options)}")
        sections[section][key.replace("-", "_")] = value
    return Config.from_dict({"preset": config.preset, **sections}, "space", trust=config.trusted)


# --- the study ------------------------------------------------------------------------------------


def _open(storage: str | None, folder: Path) -> BaseStorage:
    if storage is None:
        path = folder / JOURNAL
        check_no_link(path)
        backend = JournalFileBackend(str(path))
        _check_journal(path)
        return JournalStorage(backend)
    try:
        if storage.startswith("redis"):
            return JournalStorage(JournalRedisBackend(storage))
        return _data_base(storage)
    except ImportError as error:
        raise InputError(
            f"storage: {storage.split(':')[0]} needs a package that is not installed ({error}); "
            "for PostgreSQL: pip install 'spacetime-en[postgres]'."
        ) from None
    except Exception as error:  # whatever the data base and its driver come up with
        raise InputError(
            f"storage: {storage} cannot be opened ({_first_line(error)}); check the address, put a "
            "copy of a damaged file in its place, or begin another study elsewhere."
        ) from None


@contextmanager
def _readable(storage: str | None, folder: Path) -> Iterator[None]:
    """Say in a sentence that Optuna can make no sense of a study."""
    try:
        yield
    except (InputError, MemoryError, OSError):
        raise
    except Exception as error:  # whatever it stumbles over
        where = f"storage: {storage}" if storage else str(folder / JOURNAL)
        raise _unreadable(where, _first_line(error)) from None


def _check_journal(path: Path) -> None:
    """Refuse a journal with a line that is no entry.

    Optuna overlooks one at the end, and writes the next entry behind it, where nobody can read it.
    """
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()  # or another worker may be in the middle of its line
    try:
        with open_regular(path) as file:
            number = 0
            for number, line in enumerate(file, start=1):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):  # (bytes that are no text are ValueErrors)
                    entry = None
                whole = isinstance(entry, dict) and line.endswith(b"\n")
                if not whole or (number == 1 and entry.get("op_code") != CREATE_STUDY):
                    raise _unreadable(str(path), f"line {number} is damaged or cut off")
        if number == 0 and (path.parent / BEST).exists():
            raise _unreadable(str(path), f"it is empty, though there is a {BEST}")
    finally:
        lock.release()


def _unreadable(where: str, why: str) -> InputError:
    return InputError(
        f"{where}: the study cannot be read ({why}); put a copy of it in its place, mend it, or "
        "begin another elsewhere."
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return reason(Exception(text.splitlines()[0])) if text else type(error).__name__


def _data_base(url: str, tries: int = 5) -> RDBStorage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        for left in reversed(range(tries)):
            try:
                # A worker that was killed stops beating; others then count its trial as failed.
                return RDBStorage(url, heartbeat_interval=60, grace_period=180)
            except Exception as error:
                # Workers that start together may all try to make the tables; one succeeds, the
                # others find a table or the row with its version that "exists", or must be unique.
                beaten = isinstance(error, IntegrityError) or "exist" in str(error)
                if left == 0 or not beaten:
                    raise
                time.sleep(random.uniform(0.2, 1.0))
    raise AssertionError


def _join(storage: BaseStorage, name: str, seed: int) -> optuna.Study:
    """Make the study, or join it; the one who makes it draws by the seed alone."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(storage=storage, study_name=name)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name)
        seed = derive_seed(seed, os.getpid(), time.time_ns())  # or all would suggest the same
    study.sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_min_trials=4)
    return study


def _count(study: optuna.Study) -> int:
    """Trials that are finished or under way; those of dead workers of this machine are ended."""
    count = 0
    if isinstance(study._storage, RDBStorage):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.RUNNING and _is_dead(trial.user_attrs.get("worker", "")):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        elif trial.state is TrialState.RUNNING or trial.state in FINISHED:
            count += 1
    return count


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_dead(worker: str) -> bool:
    """Whether a worker was of this machine and is no more; of other machines nothing is known."""
    host, _, pid = worker.rpartition(":")
    return host == socket.gethostname() and pid.isdigit() and not lives(int(pid))


def _brief(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
