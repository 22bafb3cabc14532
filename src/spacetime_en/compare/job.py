"""Jobs: pieces of work that depend on each other, each with one JSON file as its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from spacetime_en.compare.results import Result

Tell = Callable[[float, str], None]


class Job(ABC):
    """A piece of work for a process of its own; it must be possible to pickle."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The stem of its file names, different from that of any other job in the folder."""

    @property
    def label(self) -> str:
        """What users read in place of the name."""
        return self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that must have ended before, well or not."""
        return ()

    @abstractmethod
    def result(self, folder: Path) -> Result | None:
        """Its result, or None; refused if it was made with other settings."""

    @abstractmethod
    def carry_out(self, folder: Path, tell: Tell) -> Result:
        """Do the work, going on after an interruption, and write the result.

        Args:
            folder: of all results; trainings go to its subfolder ``runs``.
            tell: called with the fraction of the work that is done and a short status.
        """

    @abstractmethod
    def summary(self, result: Result) -> str:
        """What to say of the result in a few words."""
