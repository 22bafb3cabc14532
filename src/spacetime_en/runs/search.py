"""Search for good settings with Optuna: any number of processes can work on one study."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.files import make_folder, refuse_foreign, write_text_atomically
from spacetime_en._util.threads import one_thread
from spacetime_en.data import Task
from spacetime_en.runs.config import Config, model_schema, task_schema
from spacetime_en.runs.study import (
    BEST_FILE,
    JOURNAL,
    fail_dead_trials,
    join_study,
    open_storage,
    reachable,
    readable,
    seed_sampler,
    worker_name,
)
from spacetime_en.training.batches import derive_seed
from spacetime_en.training.fitting import fit
from spacetime_en.training.settings import TrainingSettings, seconds
from spacetime_en.training.state import DivergenceError

if TYPE_CHECKING:
    from lightning.pytorch import Callback

SPENT = "seconds"  # attribute of a trial: its processor time
MOST_FAILURES = 5  # unusable settings before the search gives up


class NothingFinishedError(InputError):
    """No trial of a search has finished."""


@dataclass(frozen=True)
class Dimension:
    """One setting that is varied.

    Args:
        name: its name on the command line: ``lr``, ``model.hidden``, ``task.noise``.
        low, high: the bounds of a range; integers if both bounds are.
        log: sample the range on a logarithmic scale.
        choices: the values to choose from, instead of a range.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """Parse ``NAME=LOW:HIGH``, ``NAME=LOW:HIGH:log`` or ``NAME=A,B,C``."""
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
@reachable()
def search(
    config: Config,
    out: str | os.PathLike[str],
    *,
    trials: int = 20,
    timeout: str | None = None,
    storage: str | None = None,
    name: str = "spacetime",
    space: Sequence[str] = ("lr=1e-5:1e-2:log",),
    first: Sequence[Mapping[str, Any]] = (),
    task: Task | None = None,
    notify: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    alone: bool = False,
) -> Config:
    """Train with settings that Optuna suggests, until the study has enough trials.

    Each trial trains with the budget and the seed of `config`; the objective is the lowest
    validation position MSE. Trials that are worse than the median of the others at the same
    fraction of the budget are pruned. To continue a study, or to work on it in parallel, call this
    again, here or elsewhere. It uses one thread: for more cores, start more workers.

    Args:
        config: the settings that are not varied.
        out: folder for the study and for ``best.yaml``, a config for ``spacetime train``.
        trials: number of finished trials that the study should have, counting those of all workers.
        timeout: time after which no new trial starts, such as ``"2h"``.
        storage: an Optuna storage URL; None: a file in `out`.
        name: the name of the study.
        space: what to vary, see :meth:`Dimension.parse`.
        first: settings to try before Optuna suggests any, by the names in `space`.
        task: that of the config, if already loaded.
        notify: called with a line for every trial.
        alone: whether this is the study's only worker. Suggestions then depend only on the seed and
            the trials so far, not on a clock or on interruptions; and any trial that is running at
            the start, on whatever machine, is taken to be left over from a killed process.
    Returns: the best config.
    """
    # One worker, one device; to use more devices, start more workers.
    config = dataclasses.replace(
        config, training=dataclasses.replace(config.training, devices=1, num_nodes=1)
    )
    dimensions = [Dimension.parse(text) for text in space]
    for dimension in dimensions:
        for value in dimension.choices or (dimension.low, dimension.high):
            _with(config, {dimension.name: value})  # fail now rather than in a later trial
    names = [dimension.name for dimension in dimensions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"space: {twice!r} is given twice; give it once.")
    if trials < 1:
        raise InputError(f"trials: expected a positive whole number, found {trials!r}.")
    until = float("inf") if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    folder = Path(out)
    # (The folder may also hold a database.)
    refuse_foreign(folder, "study", BEST_FILE, JOURNAL, Path(storage or JOURNAL).name)
    make_folder(folder)
    with readable(storage, folder):
        study = join_study(open_storage(storage, folder), name, config.training.seed)
        _check_settings(study, config, sorted(space))
        for complete in study.get_trials(states=(TrialState.COMPLETE,), deepcopy=False):
            float(complete.values[0])  # fail now rather than after the next trial
    varied_task = any(dimension.name.startswith("task.") for dimension in dimensions)
    task = None if varied_task else task or config.load_task()
    begun: list[optuna.Trial] = []
    outcomes: list[str] = []
    impossible: list[InputError] = []

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr("worker", worker_name())
        begun.append(trial)
        begin = time.process_time()
        try:
            suggested = _with(config, {d.name: d.suggest(trial) for d in dimensions})
            value = _run_trial(suggested, task, trial)
        except (optuna.TrialPruned, DivergenceError) as stop:
            outcomes.append("diverged" if isinstance(stop, DivergenceError) else "pruned")
            raise optuna.TrialPruned from None
        except InputError as error:  # this combination of settings is invalid
            outcomes.append(str(error))
            impossible.append(error)
            raise
        finally:
            trial.set_user_attr(SPENT, time.process_time() - begin)
        outcomes.append(f"{value:.4g}")
        return value

    count = fail_dead_trials(study, alone)
    _enqueue(study, first)
    while count < trials and time.monotonic() < until:
        if alone:
            seed_sampler(study, derive_seed(config.training.seed, count))
        # (Optuna's own loop, one trial at a time: only it records that a worker is alive.)
        try:
            study.optimize(objective, n_trials=1, catch=InputError)
        except BaseException:  # including errors that Optuna does not handle: the trial is over
            if begun:  # (or the storage failed before there was one)
                study.tell(begun[-1], state=TrialState.FAIL, skip_if_finished=True)
            raise
        if len(impossible) >= MOST_FAILURES:
            raise impossible[-1]
        values = ", ".join(f"{k} {_brief(v)}" for k, v in begun[-1].params.items())
        line = f"trial {begun[-1].number + 1} of {trials}: {values}: {outcomes[-1]}"
        if _completed(study):
            _write_best(config, study, folder)
            line += f" (best {study.best_value:.4g}, trial {study.best_trial.number + 1})"
        notify(line)
        count = fail_dead_trials(study)
    if not _completed(study):
        raise NothingFinishedError(
            "search: no trial was finished; give it more time or trials, or a space in which "
            "training does not diverge."
        )
    return _write_best(config, study, folder)


def tried(
    out: str | os.PathLike[str], *, storage: str | None = None, name: str = "spacetime"
) -> list[tuple[dict[str, Any], float]]:
    """The settings tried in a study with their lowest validation errors, best first.

    Trials that diverged or were pruned are left out. For the arguments see :func:`search`.
    """
    with _trials_of(out, storage, name) as trials:
        complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        values = [(dict(trial.params), float(trial.values[0])) for trial in complete]
    return sorted(values, key=lambda pair: pair[1])


def seconds_spent(
    out: str | os.PathLike[str], *, storage: str | None = None, name: str = "spacetime"
) -> float:
    """The processor time of all trials of a study, except those whose process was killed.

    For the arguments see :func:`search`.
    """
    with _trials_of(out, storage, name) as trials:
        return sum(float(trial.user_attrs.get(SPENT, 0.0)) for trial in trials)


@contextmanager
def _trials_of(
    out: str | os.PathLike[str], storage: str | None, name: str
) -> Iterator[list[FrozenTrial]]:
    with readable(storage, Path(out)):
        study = join_study(open_storage(storage, Path(out)), name, seed=0)
        yield study.get_trials(deepcopy=False)


def _enqueue(study: optuna.Study, first: Sequence[Mapping[str, Any]]) -> None:
    """Enqueue these settings, except those that any worker has tried or is trying."""
    alive = [t for t in study.get_trials(deepcopy=False) if t.state is not TrialState.FAIL]
    known = [t.system_attrs.get("fixed_params", t.params) for t in alive]
    for settings in first:
        if dict(settings) not in known:
            study.enqueue_trial(dict(settings))


def _run_trial(config: Config, task: Task | None, trial: optuna.Trial) -> float:
    """Train once, on `task` or that of the config. Returns: the lowest validation error."""
    task = config.load_task() if task is None else task
    torch.manual_seed(config.training.seed)
    model = config.build_model(task)
    settings = _validating(config.training, len(task.train))
    return fit(model, task, settings, callbacks=[_pruning(trial)], display=False).best


def _check_settings(study: optuna.Study, config: Config, space: list[str]) -> None:
    """Refuse to join a study with other settings."""
    ours = {"config": config.to_yaml().splitlines(), "space": space}
    theirs = study.user_attrs.get("question")
    if theirs is None:
        study.set_user_attr("question", ours)
    elif theirs != ours:
        lines = [a for a in theirs["config"] + theirs["space"] if a not in ours["config"] + space]
        raise InputError(
            f"study: {study.study_name!r} was begun with other settings "
            f"({', '.join(line.strip() for line in lines[:3]) or 'fewer'}); choose another folder "
            "or name, or give the same settings."
        )


def _completed(study: optuna.Study) -> bool:
    return bool(study.get_trials(states=(TrialState.COMPLETE,), deepcopy=False))


def _write_best(config: Config, study: optuna.Study, folder: Path) -> Config:
    best = _with(config, study.best_params)
    best = dataclasses.replace(best, training=dataclasses.replace(best.training, devices=None))
    write_text_atomically(folder / BEST_FILE, best.to_yaml())
    return best


def _pruning(trial: optuna.Trial) -> Callback:
    """A Lightning callback that reports every validation, and prunes the trial if it is behind."""
    from lightning.pytorch.callbacks import LambdaCallback

    reported = 0

    def report(trainer: Any, module: Any) -> None:
        nonlocal reported
        # By tenths of the budget, so that trials with different batch sizes or speeds compare.
        tenth = int(10 * module.used + 1e-9)
        if tenth > reported:
            reported = tenth
            trial.report(module.validation["position_mse"], tenth)
            if tenth < 10 and trial.should_prune():
                raise optuna.TrialPruned

    return LambdaCallback(on_validation_end=report)


def _validating(settings: TrainingSettings, windows: int) -> TrainingSettings:
    """The settings with about ten validations per trial, used for pruning."""
    if settings.validate_every is not None:
        return settings
    epoch = -(-windows // settings.batch)
    total = settings.steps or (settings.epochs or 10) * epoch
    return dataclasses.replace(settings, validate_every=max(1, min(epoch, total // 10)))


def _with(config: Config, values: dict[str, Any]) -> Config:
    """The config with some settings replaced, by their names on the command line; validated."""
    entries = config.to_dict()
    schemas = {
        "model.": model_schema(config.preset),
        "task.": task_schema(config.task),
        "": TrainingSettings,
    }
    options = [f"{s}{f.name}" for s, schema in schemas.items() for f in dataclasses.fields(schema)]
    for option, value in values.items():
        if (name := option.replace("-", "_")) not in options:
            raise InputError(f"space: {no_such('setting', option, options)}")
        section, _, key = name.rpartition(".")
        entries[section or "training"][key] = value
    return Config.from_dict(entries, "space", trust=config.trusted)


def _brief(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
