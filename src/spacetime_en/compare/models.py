"""The jobs of a comparison that train: search a learning rate, then train with every seed."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import inside
from spacetime_en._util.schema import Count, Finite, PositiveFloat, shortened
from spacetime_en.compare.budget import ModelBudget, Pace, measure_pace
from spacetime_en.compare.candidates import Candidate, config_of
from spacetime_en.compare.job import Job, Tell
from spacetime_en.compare.results import (
    Result,
    read_result,
    result_path,
    settings_of,
    write_result,
)
from spacetime_en.compare.trained import train_first_that_converges
from spacetime_en.data.task import Task
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.presets import find_preset
from spacetime_en.runs.config import Config, open_task
from spacetime_en.runs.run import Run, environment
from spacetime_en.runs.search import NothingFinishedError, search, seconds_spent, tried
from spacetime_en.runs.training import Divergence, keep_untrained
from spacetime_en.training.settings import TrainingSettings

FACTOR = 3.0  # between the first rates to try
RUNS, SEARCHES = "runs", "searches"  # the folders of the trainings
REACH = 10.0  # maximum ratio of a rate to the preset's own


@dataclass(frozen=True)
class Question:
    """The settings shared by all jobs of a comparison.

    Args:
        task: the section of a config: ``name`` or ``data``, and settings.
        budget: of each trained model.
        seed: the first seed; the others follow it.
        storage: an Optuna storage URL for the searches; None: files in the folder.
        token: names the searches in the storage; different for every comparison.
    """

    task: Mapping[str, Any]
    budget: ModelBudget
    seed: int = 0
    storage: str | None = None
    token: str = ""

    def load_task(self) -> Task:
        """Load the task; later calls in the same process return the same object."""
        return _loaded(json.dumps(dict(self.task), default=str, sort_keys=True), self)

    def __hash__(self) -> int:
        return hash(self.token)


@lru_cache(maxsize=1)
def _loaded(key: str, question: Question) -> Task:
    return open_task(question.task)


def _config_of(candidate: Candidate, task: Task, question: Question, seed: int) -> Config:
    return config_of(candidate.preset, task, question.task, seed, augment=candidate.augment)


def pace_name(candidate: Candidate) -> str:
    """The name of the file with a model's pace."""
    return f"pace--{candidate.file_name}"


@dataclass
class _Trial:
    lr: PositiveFloat
    val_mse: Finite | None


@dataclass
class _SearchResult:
    """The required entries of a search result."""

    trials: Annotated[list[_Trial], msgspec.Meta(min_length=1)]
    pace: Pace | None
    seconds: Finite


@dataclass
class _Training:
    seconds: Finite
    val_mse: Finite | None = None
    best_step: int | None = None
    steps: Count = 0
    skipped: Count = 0
    only_base: str | None = None


@dataclass
class _FitSettings:
    training: dict[str, Any]


@dataclass
class _FitResult:
    """The required entries of a training result."""

    seed: int
    run: str
    settings: _FitSettings
    training: _Training
    seconds: Finite


@dataclass(frozen=True)
class RateSearch(Job):
    """A few short trainings of one model, to find its learning rate."""

    question: Question
    candidate: Candidate

    @property
    def name(self) -> str:
        return f"search--{self.candidate.file_name}"

    @property
    def label(self) -> str:
        return f"search--{self.candidate.preset}"

    def result(self, folder: Path) -> Result | None:
        return read_result(folder, self.name, _SearchResult)

    def carry_out(self, folder: Path, tell: Tell) -> Result:
        task, question = self.question.load_task(), self.question
        begin = time.process_time()
        config = _config_of(self.candidate, task, question, question.seed)
        pace = self._pace(config, task, folder)
        rate, trials = config.training.lr, question.budget.trials(pace)
        result: Result = {
            "name": self.name,
            "preset": self.candidate.preset,
            "trials": [{"lr": rate, "val_mse": None}],
            "pace": None if pace is None else dataclasses.asdict(pace),
        }
        if trials:
            training = question.budget.trial(config.training, pace)
            config = dataclasses.replace(config, training=training)
            result["trials"] = self._search(config, trials, task, folder, tell)
        spent = seconds_spent(**self._study(folder)) if trials else 0.0
        result["sitting_seconds"] = time.process_time() - begin
        # (Over all sessions: an interrupted search resumes where it was.)
        before = spent + (0.0 if pace is None else pace.spent)
        result["seconds"] = max(result["sitting_seconds"], before)
        write_result(folder, self.name, result)
        return result

    def _study(self, folder: Path) -> dict[str, Any]:
        """Where the trials are stored."""
        return {
            "out": inside(folder, folder / SEARCHES / self.candidate.file_name),
            "storage": self.question.storage,
            "name": f"{self.question.token}--{self.candidate.file_name}",
        }

    def _search(
        self, config: Config, trials: int, task: Task, folder: Path, tell: Tell
    ) -> list[dict[str, float]]:
        """The learning rates tried and their validation errors, best first.

        The first to be tried are the preset's own, three times it and a third of it.
        """
        rate, study = config.training.lr, self._study(folder)
        done = 0

        def told(line: str) -> None:
            nonlocal done
            done += 1
            tell(done / trials, line.partition(": ")[2])

        try:
            search(
                config,
                trials=trials,
                space=(f"lr={rate / REACH!r}:{rate * REACH!r}:log",),
                first=[{"lr": value} for value in (rate, rate * FACTOR, rate / FACTOR)[:trials]],
                task=task,
                notify=told,
                alone=True,
                **study,
            )
        except NothingFinishedError:
            raise InputError(
                "its training diverged at every learning rate that was tried."
            ) from None
        found = [{"lr": settings["lr"], "val_mse": error} for settings, error in tried(**study)]
        # Among equal errors, such as those of a base that no rate improves on, the first is used:
        # the preset's own rate, in whatever order an interruption left the trials.
        return sorted(found, key=lambda trial: (trial["val_mse"], trial["lr"] != rate, trial["lr"]))

    def _pace(self, config: Config, task: Task, folder: Path) -> Pace | None:
        """The pace of the model's training, measured once; None if the budget is given in steps."""
        if self.question.budget.steps is not None:
            return None
        name = pace_name(self.candidate)
        known = read_result(folder, name, Pace)
        if known is None:
            model = config.build_model(task)
            write_result(
                folder, name, dataclasses.asdict(measure_pace(model, task, config.training))
            )
            known = read_result(folder, name)  # read as by whoever resumes this
        return Pace(**known or {})

    def summary(self, result: Result) -> str:
        best = result["trials"][0]
        if best["val_mse"] is None:
            return f"learning rate {best['lr']:.2g}, the preset's own: no time to try others"
        return f"learning rate {best['lr']:.2g}, validation MSE {best['val_mse']:.4g}"


@dataclass(frozen=True)
class Fit(Job):
    """A model trained with one seed and the best learning rate, solved, or used as it is."""

    question: Question
    candidate: Candidate
    seed: int

    @property
    def name(self) -> str:
        return f"{self.candidate.file_name}--seed{self.seed}"

    @property
    def label(self) -> str:
        return f"{self.candidate.preset}--seed{self.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (self._search.name,) if self.candidate.kind == "trained" else ()

    @property
    def _search(self) -> RateSearch:
        return RateSearch(self.question, self.candidate)

    def result(self, folder: Path) -> Result | None:
        result = read_result(folder, self.name, _FitResult)
        # (Anything that belongs to a deleted training is recomputed.)
        return result if result is not None and self._place(folder, result).is_dir() else None

    def _place(self, folder: Path, result: Result) -> Path:
        """The folder of the run named in a result, which may not name any other."""
        run = result["run"]
        if not re.fullmatch(rf"{RUNS}/{re.escape(self.name)}(--then[\w.+-]+)?", str(run)):
            raise InputError(
                f"{result_path(folder, self.name)}: its run cannot be {shortened(run)}; delete it "
                "to make it again."
            )
        return inside(folder, folder / run)

    def model(self, folder: Path, result: Result) -> Forecaster:
        """The trained model; only the class that the user named is imported for it."""
        find_preset(self.candidate.preset)
        return Run.open(self._place(folder, result)).model()

    def carry_out(self, folder: Path, tell: Tell) -> Result:
        tell(0.0, "data")
        task = self.question.load_task()
        place = inside(folder, folder / RUNS / self.name)
        begin = time.process_time()
        if self.candidate.kind == "trivial":
            run = keep_untrained(self._configs(task, folder)[0], place, task)
            progress = run.load("best").progress
            training: Result = {"val_mse": progress.best, "seconds": 0.0}
        else:
            configs = self._configs(task, folder)
            found, _, training = train_first_that_converges(
                configs, place, tell, task, lambda *tried: self._rest(folder, *tried)
            )
            if found is None:
                raise InputError(
                    "training diverged at every learning rate that its budget was enough for; "
                    f"delete {place}* to try again."
                )
            run = found
            if training["best_step"] == 0:  # no correction improved on the base
                training["only_base"] = run.model().base_name
        result: Result = {
            "name": self.name,
            "preset": self.candidate.preset,
            "seed": self.seed,
            "run": str(run.folder.relative_to(folder)),
            "settings": settings_of(run.config),
            "training": training,
            # (Over all sessions: an interrupted training resumes where it was.)
            "seconds": max(
                time.process_time() - begin,
                training["seconds"] + training.get("diverged_seconds", 0.0),
            ),
            "sitting_seconds": time.process_time() - begin,
            "environment": environment(),
        }
        write_result(folder, self.name, result)
        return result

    def _configs(self, task: Task, folder: Path) -> list[Config]:
        """The settings of the training, by learning rate, best first."""
        config = _config_of(self.candidate, task, self.question, self.seed)
        if self.candidate.kind != "trained":
            return [config]
        trials, pace = self._searched(folder)
        training = self.question.budget.seed(config.training, pace)
        return [
            dataclasses.replace(config, training=dataclasses.replace(training, lr=trial["lr"]))
            for trial in trials
        ]

    def _rest(
        self, folder: Path, settings: TrainingSettings, diverged: Divergence
    ) -> TrainingSettings | None:
        """The settings for what a diverged training has left of its budget."""
        _, pace = self._searched(folder)
        return self.question.budget.rest(settings, pace, diverged)

    def _searched(self, folder: Path) -> tuple[list[dict[str, float]], Pace | None]:
        """The learning rates that were tried, best first, and the model's pace."""
        searched = self._search.result(folder)
        if searched is None:
            raise InputError("its learning rate is not known, because the search failed.")
        return searched["trials"], None if searched["pace"] is None else Pace(**searched["pace"])

    def summary(self, result: Result) -> str:
        return f"validation MSE {result['training']['val_mse']:.4g}"
