"""The base class of named data sets: settings, and one method that builds a task from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from filelock import FileLock

from spacetime_en._util.errors import InputError
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.schema import arguments
from spacetime_en.data.shards import is_whole
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories


@dataclass(frozen=True)
class DataSet(ABC):
    """A data set that can be loaded by name; subclasses are dataclasses.

    Fields without a default identify the data set. Those with one are settings, which users may
    override and which become command-line options; the class docstring documents them.
    """

    # Whether models need the scales of the data. False: values are already of order one.
    needs_scales: ClassVar[bool] = True

    @abstractmethod
    def load(self, name: str, cache: Path) -> Task:
        """Make, read or download the data, and cut them into windows.

        Args:
            name: of the task.
            cache: the folder in which data are kept between calls.
        """

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and their values, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.default is not MISSING}

    def with_settings(self, given: Mapping[str, Any], name: str) -> Self:
        """The same data set with other settings, all checked; `name` is for error messages."""
        if unknown := set(given) - set(self.settings):
            raise InputError(
                f"{min(unknown)}: not a setting of task {name!r}, whose settings are: "
                f"{', '.join(self.settings)}."
            )
        return replace(self, **arguments(given, get_type_hints(type(self), include_extras=True)))


def cached(
    folder: Path, name: str, total: int, make: Callable[[Callable[[int], None]], object]
) -> Trajectories:
    """Open the trajectories in `folder`, verified; if there are none, `make` writes them first.

    A progress bar shows how many of the `total` trajectories of task `name` `make` has finished.
    If several processes need the same data at once, the first generates them and the others wait.
    Existing data are only read, so they may be in a read-only cache.
    """
    if not is_whole(folder):
        lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise InputError(
                f"{folder.parent}: data of tasks are kept here, and cannot be ({error.strerror}); "
                "set SPACETIME_EN_CACHE to a folder that can be written to."
            ) from None
        try:
            if not is_whole(folder):
                with progress_bar(f"making the data of {name}", total) as progress:
                    make(progress)
        finally:
            lock.release()
    return Trajectories.open(folder, verify=True)
