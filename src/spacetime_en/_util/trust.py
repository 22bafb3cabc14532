"""Limits on what files from others may do: not run code, nor read folders the user never named.

An import path is followed if the user typed it or passed it to a function, or if its module is
already imported; one in a file needs trust. So does a data folder, unless the user has named it
before on this machine: those folders are listed in the cache, in ``named-folders.txt``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import cache_folder
from spacetime_en._util.schema import read_text, shortened

NAMED_FOLDERS = "named-folders.txt"


def named_object(path: str, *, trust: bool = True) -> Any:
    """The object that an import path names.

    Args:
        path: ``package.Class`` or ``package:Class``; modules in the working directory count.
        trust: whether the module may be imported, which runs its code; otherwise it must be
            imported already.
    """
    module, _, attribute = path.replace(":", ".").rpartition(".")
    loaded = sys.modules.get(module)
    if loaded is not None and attribute in vars(loaded):
        return vars(loaded)[attribute]
    if not trust:
        raise InputError(
            f"{shortened(path)} is no part of this package, and to import it runs its code; add "
            "--trust if you trust where the file came from (in Python, trust=True)."
        )
    try:
        with _working_directory_on_path():
            return getattr(import_module(module), attribute)
    except Exception as error:  # any error raised by the user's module
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path}: cannot be imported ({what}).") from None


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """At the end of the path, and only while needed: a data folder may contain anything."""
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def was_named(folder: str | os.PathLike[str]) -> bool:
    """Whether the user has named a data folder before."""
    return os.path.realpath(folder) in _named()


def remember(folder: str | os.PathLike[str]) -> None:
    """Record that the user has named a data folder, if the cache is writable."""
    place = os.path.realpath(folder)
    if place.isprintable() and place not in _named():
        with suppress(OSError):
            _list().parent.mkdir(parents=True, exist_ok=True)
            with _list().open("a", encoding="utf-8") as file:
                file.write(f"{place}\n")


def _named() -> set[str]:
    try:
        return set(read_text(_list()).splitlines())
    except (OSError, InputError):
        return set()


def _list() -> Path:
    return cache_folder() / NAMED_FOLDERS
