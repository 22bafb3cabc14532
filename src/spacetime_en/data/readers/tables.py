"""Tables of tracks: CSV, TSV, text and Parquet, one file or a folder of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.schema import open_regular, parse_json, shortened, typed
from spacetime_en.data.columns import Columns, listed
from spacetime_en.data.observations import Source, gather, split_name
from spacetime_en.data.readers.sandbox import read_sandboxed
from spacetime_en.data.tables import ColumnKind, ColumnTable, Labels, TextTable, is_table
from spacetime_en.data.tracks import pack
from spacetime_en.data.trajectories import Trajectories

_PARQUET = ".parquet"
_NO_TABLES = ("readme", "license", "licence")  # texts often found next to tables


def read_tables(
    path: Path,
    columns: Columns | None = None,
    time_step: float | None = None,
    frame_step: float | None = None,
    interpolate: int = 0,
) -> Trajectories:
    """Read tracks from a table, or from all tables in a folder, each of them a recording.

    Subfolders train, val and test are the splits.

    Args:
        path: of the file or folder.
        columns: names of columns that do not have the usual names.
        time_step: time between frames, if the table does not give it.
        frame_step: frame numbers, or time, between frames; None: the most common.
        interpolate: fill gaps of up to this many frames by linear interpolation.
    """
    sources = _sources(path) if path.is_dir() else [Source(_open(path), _stem(path))]
    observations = gather(sources, columns or Columns())
    if path.is_dir():
        others = [p for p in _inside(path) if not _is_wanted(p)]
        if others:
            observations.notes.append(f"files ignored: {listed(p.name for p in others[:10])}")
    return pack(
        observations,
        time_step=time_step,
        frame_step=frame_step,
        interpolate=interpolate,
        meta={"source": path.name},
    )


def _sources(folder: Path) -> list[Source]:
    sources = []
    for path in filter(_is_wanted, _inside(folder)):
        inner = path.relative_to(folder)
        name = inner.with_name(_stem(path)).as_posix()
        if not name.isprintable():
            raise InputError(f"{folder}: {shortened(name)} cannot be the name of a recording.")
        split = next(filter(None, map(split_name, inner.parts[:-1])), None)
        sources.append(Source(_open(path, inside=True), name, split))
    return sources


def _inside(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())


def _is_wanted(path: Path) -> bool:
    return is_table(path) and not path.name.lower().startswith((".", *_NO_TABLES))


def _stem(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.stem


def _open(path: Path, *, inside: bool = False) -> ColumnTable:
    return (
        _Parquet(path, inside)
        if path.suffix.lower() == _PARQUET
        else TextTable(path, inside=inside)
    )


class _Parquet:
    """A Parquet file (the extra ``parquet``), read by pyarrow in a process of its own."""

    def __init__(self, path: Path, inside: bool) -> None:
        require("pyarrow", "parquet")
        open_regular(path, inside=inside).close()
        self.path, self.where = path, str(path)
        self.notes: list[str] = []
        _, texts = read_sandboxed("parquet", path, columns=None)
        self.names = self._parsed(texts["names"])

    def _parsed(self, text: str) -> list[str]:
        values: list[str] = typed(parse_json(text, self.where), list[str], self.where)
        return values

    def read(self, kinds: Mapping[str, ColumnKind]) -> dict[str, Any]:
        """Columns by name; see :class:`~spacetime_en.data.tables.Table`."""
        arrays, texts = read_sandboxed("parquet", self.path, columns=json.dumps(dict(kinds)))
        columns: dict[str, Any] = {}
        for place, (name, kind) in enumerate(kinds.items()):
            array = arrays.pop(f"column{place}")
            if kind != "label":
                columns[name] = np.asarray(array, dtype=np.float64)
                continue
            words = texts.get(f"column{place}")
            values: list[Any] = (
                arrays.pop(f"values{place}").tolist() if words is None else self._parsed(words)
            )
            columns[name] = Labels(array.astype(np.int32), values)
        return columns

    def place(self, row: int) -> str:
        """The number of a row, from 0."""
        return f"{self.path}, row {row}"
