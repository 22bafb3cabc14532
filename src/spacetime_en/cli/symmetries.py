"""``spacetime symmetries``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from spacetime_en._util.errors import InputError
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.terminal import Terminal
from spacetime_en.cli.selection import task_field, task_in, with_options
from spacetime_en.runs.config import open_task


@dataclass(frozen=True, kw_only=True)
class FindSymmetries:
    """Find out which symmetries your data have.

    Translations, rotations (and about which axis), reflections, permutations, time shifts and
    time reversal, scale and boosts: each with a measured score and a verdict. A test of the law of
    motion, not of where things happen to be; reads no test windows. See docs/symmetries.md.

    Args:
        task: name of a task, as for `spacetime train`.
        data: folder of a data set instead (see `spacetime data import`).
        rows: nodes in windows to examine, spread over all, 6,000 by default; more take longer and
            find weaker effects.
        json: print a JSON object instead of a table.
    """

    source: ClassVar[Mapping[str, Any]] = {}

    task: str | None = None
    data: Path | None = None
    rows: int | None = None
    json: bool = False

    @classmethod
    def with_options_for(cls, arguments: Sequence[str]) -> type[Self]:
        """The command with the options of the task that `arguments` name."""
        source = task_in(arguments)
        return with_options(cls, [task_field(source, {})] if source else [], source=source)

    def __call__(self) -> None:
        if not self.source:
            raise InputError("task: whose symmetries? Give --task NAME or --data FOLDER.")
        settings = dataclasses.asdict(getattr(self, "task_settings"))  # noqa: B009
        task = open_task({**self.source, **settings})
        from spacetime_en.symmetries.rows import MOST_ROWS
        from spacetime_en.symmetries.study import ASKED_ABOUT, find_symmetries
        from spacetime_en.symmetries.words import print_report

        with progress_bar("symmetries", len(ASKED_ABOUT) + 1) as advance:
            rows = MOST_ROWS if self.rows is None else self.rows
            report = find_symmetries(task, advance, most_rows=rows)
        if self.json:
            print(json.dumps(report.to_json(), indent=2))
        else:
            print_report(report, Terminal())
