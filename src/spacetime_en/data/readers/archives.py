"""Tar files, read in memory: nothing is unpacked to disk, and the unpacked size is limited."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.machine import in_words
from spacetime_en._util.schema import open_regular, shortened
from spacetime_en.data.limits import check_memory

MOST_UNPACKED = 1 << 30  # bytes, or a hundred times the archive's length
MOST_MEMBERS = 100_000


def unpacked(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files in a (possibly compressed) tar file, one by one.

    Only names with these endings, in lower case, are included.
    """
    most, held = max(MOST_UNPACKED, 100 * path.stat().st_size), 0
    with open_regular(path) as file, ExitStack() as stack:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream: Any = stack.enter_context(gzip.GzipFile(fileobj=file)) if packed else file
        bounded: Any = _Bounded(stream, most, path)
        archive = stack.enter_context(tarfile.open(fileobj=bounded, mode="r:"))
        last = -1
        for count, member in enumerate(archive):
            if count > MOST_MEMBERS or member.offset <= last or member.size < 0:
                raise InputError(f"{path}: is damaged, or holds more than {MOST_MEMBERS} files.")
            last = member.offset
            if not (member.isreg() and member.name.lower().endswith(endings)):
                continue
            if member.issparse():
                raise InputError(f"{path}: {shortened(member.name)} has holes; pack it without.")
            held += member.size
            check_memory(held, path)  # a character may become a number
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content.read()


class _Bounded:
    """A stream with a size limit and a clear error: a small archive may unpack to anything."""

    def __init__(self, stream: Any, most: int, where: Path) -> None:
        self.stream, self.most, self.where = stream, most, where

    def _check(self, place: int) -> None:
        if place > self.most:
            raise InputError(f"{self.where}: unpacks to more than {in_words(self.most)}.")

    def read(self, size: int = -1) -> Any:
        self._check(self.tell() + size)
        return self.stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        self._check(place)
        return int(self.stream.seek(place, whence))

    def tell(self) -> int:
        return int(self.stream.tell())
