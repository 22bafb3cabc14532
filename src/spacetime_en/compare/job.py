"""Jobs: pieces of work that depend on each other, each with one JSON file as its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from spacetime_en.compare.results import Result

Tell = Callable[[float, str], None]


class Job(ABC):
    """A piece of work for a separate process; must be picklable."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The stem of its file names, unique in the folder."""

    @property
    def label(self) -> str:
        """The name shown to users."""
        return self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that must have ended before, successfully or not."""
        return ()

    @abstractmethod
    def result(self, folder: Path) -> Result | None:
        """Its result, or None; an error if it was computed with other settings."""

    @abstractmethod
    def carry_out(self, folder: Path, tell: Tell) -> Result:
        """Do the work, resuming after an interruption, and write the result.

        Args:
            folder: of all results; trainings go to its subfolder ``runs``.
            tell: called with the fraction of the work done and a short status.
        """

    @abstractmethod
    def summary(self, result: Result) -> str:
        """A summary of the result in a few words."""
