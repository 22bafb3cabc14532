"""``spacetime train`` and ``spacetime search``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tyro.conf import Positional

from spacetime_en.cli.selection import Selection


@dataclass(frozen=True, kw_only=True)
class _Training:
    """Options common to train and search."""

    selection: ClassVar[Selection]

    preset: Positional[str] = ""
    out: Path
    task: str | None = None
    data: Path | None = None
    config: Path | None = None
    trust: bool = False


@dataclass(frozen=True, kw_only=True)
class Train(_Training):
    """Train a model. All options: spacetime train PRESET --task TASK --help

    Args:
        preset: the name of a preset (see `spacetime models`), or the import path of your own class.
        out: folder of the run.
        task: charged, charged-noisy, gravity, springs, egnn-nbody, solar-system,
            mocap-walk, mocap-run or mocap-basketball.
        data: or the folder of a data set (see `spacetime data import`).
        config: YAML file with settings; options given here replace its own.
        trust: import the class that a file names (of --config, or of the run to resume), and read
            the data that it names.
        resume: go on with the run in that folder, if there is one; the budget may change.
        loggers: tensorboard, csv, or import paths of Lightning's other loggers.
    """

    resume: bool = False
    loggers: tuple[str, ...] = ("tensorboard", "csv")

    def __call__(self) -> None:
        from spacetime_en.runs.run import is_first_process, train

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
            f"{run.folder}: best at step {best.best_step}, validation position MSE "
            f"{best.best:.4g}.\nNext: spacetime evaluate {run.folder}"
        )


@dataclass(frozen=True, kw_only=True)
class Search(_Training):
    """Search for good settings. All options: spacetime search PRESET --task TASK --help

    Several processes, on one machine or many, can work on one study: give all the same --storage
    (or the same --out on one machine).

    Args:
        preset: the name of a preset, or the import path of your own class.
        out: folder of the study; its best settings are written there as best.yaml.
        task: the name of a task.
        data: or the folder of a data set.
        config: YAML file with settings.
        trust: import the class that the file names, and read the data that it names.
        trials: how many, those of all processes together.
        timeout: start no trial after this time, such as 10m or 2h.
        storage: an Optuna storage URL, such as postgresql://host/db; by default a file in --out.
        study: the name of the study in the storage.
        space: what to vary, by the names of the options: lr=1e-5:1e-2:log for a range,
            model.hidden=32,64,128 for a choice.
    """

    trials: int = 20
    timeout: str | None = None
    storage: str | None = None
    study: str = "spacetime"
    space: tuple[str, ...] = ("lr=1e-5:1e-2:log",)

    def __call__(self) -> None:
        from spacetime_en.runs.search import BEST, search

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
        print(f"Next: spacetime train --config {self.out / BEST} --out runs/best")


def commands(arguments: Sequence[str]) -> dict[str, Any]:
    """The two commands, with the options of what `arguments` choose."""
    made = {}
    for name, base in (("train", Train), ("search", Search)):
        selection = (
            Selection.from_argv(arguments[1:]) if list(arguments[:1]) == [name] else Selection()
        )
        made[name] = dataclasses.make_dataclass(
            base.__name__,
            selection.fields(),
            bases=(base,),
            namespace={"selection": selection, "__doc__": base.__doc__},
            frozen=True,
            kw_only=True,
        )
    return made
