"""The progress of jobs on standard error."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, TimeRemainingColumn

from spacetime_en._util.progress import bars
from spacetime_en._util.terminal import Terminal, text_column


class JobDisplay:
    """One bar in total and one per worker; without a terminal, one line per result.

    Args:
        total: number of jobs.
        done: number of those that were done before.
    """

    def __init__(self, total: int, done: int) -> None:
        self.console = Terminal(stderr=True)
        self.total, self.finished = total, done
        word = text_column("{task.fields[word]}")
        self.bars = bars(self.console, BarColumn(20), word, TimeRemainingColumn())
        self.fractions: dict[int, float] = {}
        self.lines: dict[int, Any] = {}
        self.all = self.bars.add_task("experiments", total=total, completed=done, word="")

    def __enter__(self) -> JobDisplay:
        self.bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bars.stop()

    def at(self, number: int, name: str, fraction: float, word: str) -> None:
        """Show the progress of a worker's job."""
        if number not in self.lines:
            self.lines[number] = self.bars.add_task("", total=1.0, word="")
        self.bars.update(self.lines[number], description=name, completed=fraction, word=word)
        self.fractions[number] = fraction
        self._all()

    def done(self, number: int | None, name: str, word: str) -> None:
        """Print the outcome of a job, whether of a local worker or of another machine."""
        self.finished += 1
        if number is not None:
            self.fractions[number] = 0.0
        self._all()
        self.console.say(f"{self.finished} of {self.total}  {name}: {word}")

    def _all(self) -> None:
        done = self.finished + 0.99 * sum(self.fractions.values())
        self.bars.update(self.all, completed=done, word=f"{self.finished} of {self.total}")
