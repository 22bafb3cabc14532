"""``spacetime compare``, and ``spacetime train auto``, which keeps only the winner."""

from __future__ import annotations

import dataclasses
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from tyro.conf import Positional

from spacetime_en._util.errors import InputError
from spacetime_en._util.terminal import Terminal
from spacetime_en.cli.selection import evaluation_of, task_field, task_in, with_options


@dataclass(frozen=True, kw_only=True)
class _Comparing:
    """Options shared by both commands."""

    source: ClassVar[Mapping[str, Any]] = {}

    presets: Positional[tuple[str, ...]] = ()
    out: Path
    task: str | None = None
    data: Path | None = None
    budget: str = "5m"
    seeds: int = 3
    seed: int = 0
    workers: int | None = None
    storage: str | None = None
    ray: bool = False
    symmetries: bool = True

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Self]:
        """The command with the options of the task that `arguments` name."""
        source = task_in(arguments)
        return with_options(cls, [task_field(source, {})] if source else [], source=source)

    def _question(self) -> dict[str, Any]:
        """The shared arguments of :func:`compare` and :func:`train_best`."""
        if not self.source:
            raise InputError("task: what to compare on? Give --task NAME or --data FOLDER.")
        settings = dataclasses.asdict(getattr(self, "task_settings"))  # noqa: B009
        return {
            "task": {**self.source, **settings},
            "out": self.out,
            "presets": self.presets,
            "budget": self.budget,
            "seeds": self.seeds,
            "seed": self.seed,
            "workers": self.workers,
            "storage": self.storage,
            "ray": self.ray,
            "symmetries": self.symmetries,
            "notify": Terminal().say,
        }


@dataclass(frozen=True, kw_only=True)
class Compare(_Comparing):
    """Find the best model for your data.

    Trivial forecasts, models that are solved in closed form, and trained ones, each with the same
    processor time and the same search for its learning rate. Run the same command again to continue
    after an interruption.

    Args:
        presets: names of models (see `spacetime models`), or import paths of your own classes; by
            default all that fit the data.
        out: folder for everything; the best model is the run in its folder best.
        task: name of a task, as for `spacetime train`.
        data: folder of a data set to compare on instead (see `spacetime data import`).
        budget: processor time of each trained model, for its search, all seeds and validation, such
            as 30s, 5m or 1h; or a number of steps, as "600 steps", with which the result does not
            depend on the machine.
        seeds: number of trainings of each model.
        seed: the first of their seeds; the others follow it.
        workers: number of processes, each with one core (or GPU); by default one for each.
        storage: Optuna storage URL, such as postgresql://host/db; the same command on several
            machines with the same storage and a shared --out divides the work.
        ray: divide the work on a Ray cluster whose machines share --out (the extra ray).
        symmetries: first test which symmetries the data have (docs/symmetries.md), and give models
            an up direction if rotations hold about one axis only.
        open: open the report in a browser.
    """

    open: bool = False

    def __call__(self) -> None:
        from spacetime_en.compare.comparison import compare

        made = compare(**self._question())
        terminal = Terminal()
        made.leaderboard.print(terminal)
        following = evaluation_of(made.best, made.leaderboard.chosen)
        terminal.say(f"Report: {made.report}\nNext: {following}")
        if self.open:
            webbrowser.open(made.report.resolve().as_uri())


@dataclass(frozen=True, kw_only=True)
class Auto(_Comparing):
    """Train the best model for your data.

    Compares models as `spacetime compare` does, and leaves the run of the best. Run the same
    command again to continue after an interruption.

    Args:
        presets: auto, and names of models to choose from; by default all that fit the data.
        out: folder of the run; the comparison is its subfolder compare.
        task: name of a task.
        data: folder of a data set to train on instead.
        budget: processor time of each trained model, or its steps, as for `spacetime compare`.
        seeds: number of trainings of each model.
        seed: the first of their seeds; the others follow it.
        workers: number of processes, each with one core (or GPU); by default one for each.
        storage: Optuna storage URL, to divide the work among machines.
        ray: divide the work on a Ray cluster whose machines share --out (the extra ray).
        symmetries: first test which symmetries the data have, as for `spacetime compare`.
    """

    def __call__(self) -> None:
        from spacetime_en.compare.comparison import train_best

        question = self._question()
        run = train_best(**question | {"presets": question["presets"][1:]})
        best = run.load("best").progress
        print(
            f"{run.folder}: {run.config.preset}, validation position MSE per coordinate "
            f"{best.best:.4g}.\nNext: {evaluation_of(run.folder, run.config.preset)}"
        )
