"""Commands on data: ``spacetime data info`` and ``spacetime conservation``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from tyro.conf import Positional

from spacetime_en._util.files import refuse_existing
from spacetime_en._util.terminal import Terminal
from spacetime_en.cli.selection import task_field, with_options
from spacetime_en.data import TASKS, Task
from spacetime_en.runs.config import open_task


@dataclass(frozen=True, kw_only=True)
class _OfData:
    """A command about a task or a data set, with the options of the task."""

    source: ClassVar[Mapping[str, Any]] = {}

    name: Positional[str]
    json: bool = False

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Self]:
        """The command with the options of the task or the data set that `arguments` name."""
        source = _source_in(arguments)
        fields = [task_field(source, {})] if source else []
        return with_options(cls, fields, source=source)

    def open(self) -> Task:
        """Load the task, with the settings given."""
        settings = getattr(self, "task_settings", None)
        chosen = dataclasses.asdict(settings) if settings else {}
        return open_task({**_source(self.name), **chosen})


@dataclass(frozen=True, kw_only=True)
class DataInfo(_OfData):
    """Describe a task or a data set.

    Recordings, nodes, splits, ranges of the values, drift of energy and momentum, errors of trivial
    forecasts: MSE per coordinate, in squared units of the data. With the options of the task, as
    `spacetime train` has them, they are those of the windows that will be trained on:
    spacetime data info data/mine --task.length 8 --task.target-steps 12

    Args:
        name: name of a task, or folder of a data set.
        picture: file for a plot of a few windows, such as some.png; by default none is drawn.
        json: print a JSON object instead of tables.
    """

    picture: Path | None = None

    def __call__(self) -> None:
        from spacetime_en.report.tables.task import describe_task, print_task

        if self.picture is not None:
            refuse_existing(self.picture)
        task = self.open()
        description = describe_task(task)
        if self.picture is not None:
            from spacetime_en.report.drawing import plot_trajectories

            description["picture"] = str(plot_trajectories(task, self.picture))
        if self.json:
            print(json.dumps(description, indent=2))
        else:
            print_task(description, Terminal())


@dataclass(frozen=True, kw_only=True)
class Conservation(_OfData):
    """Find what the paths of a task or a data set conserve.

    Energies, momenta, and whatever else in a dictionary of terms stays constant along the paths of
    the training windows, and along those of the test windows; each connected component of a graph
    for itself. Longer windows show more:
    spacetime conservation data/mine --task.length 20

    Args:
        name: name of a task, or folder of a data set.
        json: print a JSON object instead of a table.
    """

    def __call__(self) -> None:
        from spacetime_en.report.tables.conservation import (
            describe_conservation,
            print_conservation,
        )

        description = describe_conservation(self.open())
        if self.json:
            print(json.dumps(description, indent=2, ensure_ascii=False))
        else:
            print_conservation(description, Terminal())


def _source_in(arguments: Sequence[str]) -> dict[str, str]:
    """The task or the data set named among the arguments."""
    words = [word for word in arguments if not word.startswith("-")]
    known = [word for word in words if word in TASKS or Path(word).is_dir()]
    return next(map(_source, known or words), {})


def _source(name: str) -> dict[str, str]:
    """The source of a task: a data set's folder, or else the name of a task."""
    if name in TASKS or not Path(name).exists():
        return {"name": name}
    return {"data": name}
