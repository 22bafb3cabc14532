"""What a data set with a name is: settings, and one method that makes a task of them."""

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
    """A data set that can be loaded by name; subclasses are dataclasses, too.

    Fields without a default say which data set it is. Those with one are its settings, which
    users may replace, and become options of the command line; the class's docstring explains them.
    """

    # Whether models must be told the data's scales. False: values are of order one already.
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
        """The same data set with other settings, all checked; `name` is for the error."""
        if unknown := set(given) - set(self.settings):
            raise InputError(
                f"{min(unknown)}: not a setting of task {name!r}, whose settings are: "
                f"{', '.join(self.settings)}."
            )
        return replace(self, **arguments(given, get_type_hints(type(self), include_extras=True)))


def cached(
    folder: Path, name: str, total: int, make: Callable[[Callable[[int], None]], object]
) -> Trajectories:
    """The trajectories in `folder`, which `make` writes if they are not there; verified.

    A progress bar shows how many of the `total` trajectories of task `name` `make` reports as done.
    Several processes may want the same data at once: the first makes them, the others wait. Data
    that are there are only read: they may be in a cache that nobody can write to.
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
