"""``spacetime train`` and ``spacetime search``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from tyro.conf import Positional

from spacetime_en.cli.selection import Selection, evaluation_of, with_options
from spacetime_en.training.settings import Whose


@dataclass(frozen=True, kw_only=True)
class _Training:
    """Options shared by train and search."""

    selection: ClassVar[Selection]

    preset: Positional[str] = ""
    out: Path
    task: str | None = None
    data: Path | None = None
    config: Path | None = None
    settings: Whose | None = None
    trust: bool = False

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Self]:
        """The command with the options of the model and the task that `arguments` name."""
        selection = Selection.from_arguments(arguments)
        return with_options(cls, selection.fields(), selection=selection)


@dataclass(frozen=True, kw_only=True)
class Train(_Training):
    """Train a model on a task.

    With the preset and the task named, --help also lists the options of the model and of the
    task: spacetime train set --task charged --help

    Args:
        preset: name of a preset (see `spacetime models`), import path of your own class, or auto,
            which compares all and trains the best (spacetime train auto --help).
        out: folder of the run.
        task: name of a task: charged, charged-noisy, gravity, springs, egnn-nbody, solar-system,
            mocap-walk, mocap-run, mocap-basketball, eth, hotel, univ, zara1 or zara2.
        data: folder of a data set to train on instead (see `spacetime data import`).
        config: YAML file with settings; options on the command line override it.
        settings: which settings to use for the models of the paper, unless given: the paper's or
            ours, for short budgets and without dropout; by default the paper's on its own tasks,
            charged and charged-noisy, and ours on all others.
        trust: allow a file (--config, or that of the run to resume) to have its class imported and
            its data read.
        resume: continue the run in --out if there is one; only the budget may change.
        loggers: tensorboard, csv, or import paths of other Lightning loggers.
    """

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Any]:
        """The command for a preset and a task; for the word ``auto``, the one that selects."""
        if list(arguments[:1]) == ["auto"]:
            from spacetime_en.cli.comparing import Auto

            return Auto.with_options_for(arguments)
        return super().with_options_for(arguments)

    resume: bool = False
    loggers: tuple[str, ...] = ("tensorboard", "csv")

    def __call__(self) -> None:
        from spacetime_en.runs.training import is_first_process, train

        run = train(
            self.selection.config(self),
            self.out,
            resume=self.resume,
            loggers=self.loggers,
            trust=self.trust,
        )
        if not is_first_process():
            return
        best = run.load("best").progress
        print(
            f"{run.folder}: best at step {best.best_step}, validation position MSE per coordinate "
            f"{best.best:.4g}.\nNext: {evaluation_of(run.folder, run.config.preset)}"
        )


@dataclass(frozen=True, kw_only=True)
class Search(_Training):
    """Search for good settings with Optuna.

    With the preset and the task named, --help also lists the options of the model and of the
    task: spacetime search set --task charged --help

    Several processes, on one machine or many, can share a study: give them the same --storage (or,
    on one machine, the same --out).

    Args:
        preset: name of a preset, or import path of your own class.
        out: folder of the study; the best settings are written there, to best.yaml.
        task: name of a task.
        data: folder of a data set to train on instead.
        config: YAML file with settings; options on the command line override it.
        settings: which settings to use for the models of the paper, as for `spacetime train`.
        trust: allow the file to have its class imported and its data read.
        trials: number of trials, counting those of all processes.
        timeout: time after which no new trial starts, such as 10m or 2h.
        storage: Optuna storage URL, such as postgresql://host/db; by default a file in --out.
        study: name of the study in the storage.
        space: what to vary, by the names of the options: lr=1e-5:1e-2:log for a range,
            model.hidden=32,64,128 for a choice.
    """

    trials: int = 20
    timeout: str | None = None
    storage: str | None = None
    study: str = "spacetime"
    space: tuple[str, ...] = ("lr=1e-5:1e-2:log",)

    def __call__(self) -> None:
        from spacetime_en.runs.search import search
        from spacetime_en.runs.study import BEST_FILE

        best = search(
            self.selection.config(self),
            self.out,
            trials=self.trials,
            timeout=self.timeout,
            storage=self.storage,
            name=self.study,
            space=self.space,
        )
        print(best.to_yaml())
        print(f"Next: spacetime train --config {self.out / BEST_FILE} --out runs/best")
