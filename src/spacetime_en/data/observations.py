"""Observations, one per row: which node was seen where and when, in one or several tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import shortened
from spacetime_en.data.columns import Columns, Found, find_columns, listed
from spacetime_en.data.tables import ColumnKind, ColumnTable, Labels, whole_numbers

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class Source:
    """A table, the name of its recording, and its split if known."""

    table: ColumnTable
    recording: str
    split: str | None = None


@dataclass
class Observations:
    """M observations in any order; consumed by :func:`~spacetime_en.data.tracks.pack`.

    Args:
        frame: its number or time, (M,).
        timed: whether `frame` is a time.
        node: which node was observed, (M,), an index into `nodes`.
        nodes: their numbers or names, without duplicates.
        recording: (M,), an index into `recordings`.
        recordings: their names.
        splits: train, val or test of each recording, or None.
        positions: n arrays (M,); NaN or infinite where nothing was seen.
        velocities: n arrays (M,), or none.
        attributes: (M,) each, by name.
        clock: the time of each row, if `frame` is a number and the time is also known, (M,).
        columns: of the first table, by their meaning.
        notes: messages for the user.
        starts: the first row of each source's table.
        tables: the tables.
    """

    frame: NDArray[np.float64]
    timed: bool
    node: NDArray[np.int32]
    nodes: list[int] | list[str]
    recording: NDArray[np.int32]
    recordings: list[str]
    splits: list[str] | None
    positions: list[NDArray[np.float64]]
    velocities: list[NDArray[np.float64]]
    attributes: dict[str, NDArray[np.float64]]
    clock: NDArray[np.float64] | None
    columns: Found
    notes: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    tables: list[ColumnTable] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether nodes have names rather than numbers."""
        return isinstance(self.nodes[0], str)

    def place(self, row: int) -> str:
        """The position of a row, for messages."""
        i = bisect_right(self.starts, row) - 1
        return self.tables[i].place(row - self.starts[i])


def split_name(word: str) -> str | None:
    """train, val or test from the usual names of folders and labels; None for others."""
    return _SPLITS.get(word.strip().lower())


def gather(sources: Sequence[Source], wanted: Columns) -> Observations:
    """Read the observations of several tables.

    Args:
        sources: tables of the same kind; each is a recording, or has a column for it.
        wanted: the columns that the user named.
    """
    founds = [_found(source.table, wanted) for source in sources]
    first, notes = founds[0], []
    for source, found in zip(sources, founds, strict=True):
        if len(found.positions) != len(first.positions) or found.timed != first.timed:
            raise InputError(
                f"{source.table.where}: has {_kind(found)}, and {sources[0].table.where} has "
                f"{_kind(first)}; import them apart, or name the columns."
            )
    has_velocities = all(found.velocities for found in founds)
    names = [name for name in first.attributes if all(name in f.attributes for f in founds)]
    has_clock = all(found.clock for found in founds)
    parts = _Parts()
    for source, found in zip(sources, founds, strict=True):
        kinds: dict[str, ColumnKind] = {found.frame: "time", found.id: "label"}
        kinds |= dict.fromkeys(found.positions, "number")
        kinds |= dict.fromkeys(found.velocities if has_velocities else (), "number")
        kinds |= {found.attributes[name]: "number" for name in names}
        kinds |= {found.clock: "time"} if has_clock and found.clock else {}
        kinds |= {name: "label" for name in (found.recording, found.split) if name}
        columns = source.table.read(kinds)
        if len(columns[found.frame]) == 0:
            raise InputError(f"{source.table.where}: has a header, and no rows below it.")
        parts.add(source, found, columns, names, has_velocities, has_clock)
        notes += [note for note in source.table.notes if note not in notes]
    node, nodes = _merged(parts.node)
    recording, recordings, splits = _recordings(sources, parts)
    joined = Observations(
        _joined(parts.frame),
        first.timed,
        node,
        nodes,
        recording,
        recordings,
        splits,
        [_joined(pieces) for pieces in parts.positions],
        [_joined(pieces) for pieces in parts.velocities],
        {name: _joined(pieces) for name, pieces in parts.attributes.items()},
        _joined(parts.clock) if has_clock else None,
        first,
        [first.in_words(), *notes],
        parts.starts,
        [source.table for source in sources],
    )
    bad = ~np.isfinite(joined.frame)
    if bad.any():
        raise InputError(f"{joined.place(int(bad.argmax()))}: {first.frame}: is missing.")
    return joined


def _found(table: ColumnTable, wanted: Columns) -> Found:
    try:
        return find_columns(table.names, wanted)
    except InputError as error:
        raise InputError(f"{table.where}: {error}") from None


def _kind(found: Found) -> str:
    return f"{'times' if found.timed else 'frames'} and positions {listed(found.positions)}"


class _Parts:
    """The columns of each table, by their meaning."""

    def __init__(self) -> None:
        self.frame: list[Any] = []
        self.node: list[Labels] = []
        self.recording: list[Labels | None] = []
        self.split: list[Labels | None] = []
        self.positions: list[list[Any]] = []
        self.velocities: list[list[Any]] = []
        self.attributes: dict[str, list[Any]] = {}
        self.clock: list[Any] = []
        self.starts: list[int] = []
        self.rows = 0

    def add(
        self,
        source: Source,
        found: Found,
        columns: dict[str, Any],
        names: Sequence[str],
        has_velocities: bool,
        has_clock: bool,
    ) -> None:
        self.starts.append(self.rows)
        self.frame.append(columns[found.frame])
        self.rows += len(self.frame[-1])
        self.node.append(columns[found.id])
        self.recording.append(columns[found.recording] if found.recording else None)
        self.split.append(columns[found.split] if found.split else None)
        _append(self.positions, [columns[name] for name in found.positions])
        _append(self.velocities, [columns[n] for n in found.velocities if has_velocities])
        for name in names:
            self.attributes.setdefault(name, []).append(columns[found.attributes[name]])
        if has_clock and found.clock:
            self.clock.append(columns[found.clock])


def _append(lists: list[list[Any]], arrays: Sequence[Any]) -> None:
    lists.extend([] for _ in range(len(arrays) - len(lists)))
    for pieces, array in zip(lists, arrays, strict=True):
        pieces.append(array)


def _joined(pieces: list[Any]) -> NDArray[Any]:
    """Concatenate the pieces, which are freed."""
    array: NDArray[Any] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    pieces.clear()
    return array


def _merged(labels: list[Labels]) -> tuple[NDArray[np.int32], list[int] | list[str]]:
    """Merge the labels of several tables under one index; integers are sorted."""
    every = [value for one in labels for value in one.values]
    numbers = whole_numbers(every)
    keys: list[Any] = [str(value) for value in every] if numbers is None else numbers
    nodes: list[Any] = list(dict.fromkeys(keys)) if numbers is None else sorted(set(numbers))
    index = {node: code for code, node in enumerate(nodes)}
    codes, done = [], 0
    for one in labels:
        here = keys[done : done + len(one.values)]
        done += len(here)
        codes.append(np.array([index[key] for key in here], dtype=np.int32)[one.codes])
    labels.clear()
    return _joined(codes), nodes


def _recordings(
    sources: Sequence[Source], parts: _Parts
) -> tuple[NDArray[np.int32], list[str], list[str] | None]:
    """The recording of each row, the names of all recordings, and their splits.

    Rows in different splits never belong to the same recording.
    """
    codes: list[Any] = []
    names: list[str] = []
    splits: list[str | None] = []
    sizes = np.diff([*parts.starts, parts.rows])
    for source, label, split, size in zip(
        sources, parts.recording, parts.split, sizes, strict=True
    ):
        values = [None] if label is None else label.values
        words = [None] if split is None else split.values
        code: NDArray[Any]
        if label is None and split is None:
            there, code = np.zeros(1, dtype=np.int64), np.broadcast_to(np.int32(0), size)
        else:
            pairs = np.zeros(size, dtype=np.int64) if label is None else label.codes * len(words)
            there, code = np.unique(
                pairs if split is None else pairs + split.codes, return_inverse=True
            )
        codes.append(code if not names else (code + len(names)).astype(np.int32))
        for value, word in (divmod(int(pair), len(words)) for pair in there):
            own = values[value]
            whole = own is None or len(sources) > 1
            parts_of_name = [source.recording] if whole else []
            names.append("/".join([*parts_of_name, *([] if own is None else [str(own)])]))
            splits.append(source.split if words[word] is None else _split_of(words[word]))
    if len(set(names)) < len(names):
        names = [f"{name}/{split}" for name, split in zip(names, splits, strict=True)]
    known = [split for split in splits if split is not None]
    if known and len(known) < len(splits):
        raise InputError(
            f"split: the recording {shortened(names[splits.index(None)])} has none, and others "
            "have; give all of them one."
        )
    return _joined(codes), names, known or None


def _split_of(word: Any) -> str:
    name = split_name(str(word))
    if name is None:
        raise InputError(f"split: expected train, val or test, found {shortened(word)}.")
    return name
