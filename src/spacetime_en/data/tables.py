"""Tables: named columns from text files, or from data frames and dictionaries in memory.

A table is read column by column: numbers, times and labels. Text is read in chunks, so that little
more than the requested columns is held in memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import open_regular, reason, shortened
from spacetime_en.data.columns import BY_PLACE
from spacetime_en.data.limits import check_memory

TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".parquet")
ColumnKind = Literal["number", "time", "label"]
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>", "nat", "-", "?"))
_CHUNK = 512  # rows; too few to trigger Python's garbage collector
_CHUNKS = 100  # chunks between checks of the memory
_MOST_COLUMNS = 1000
_BLOCK = 1 << 20  # characters per read
_LONGEST_LABEL = 200
_FIRST_LINES = 1000  # comments above a header


@dataclass(frozen=True)
class Labels:
    """A column of names or of integers.

    Args:
        codes: the index into `values` for each row, (rows,).
        values: without duplicates.
    """

    codes: NDArray[np.int32]
    values: list[Any]


ColumnValues = NDArray[np.float64] | Labels


class ColumnTable(Protocol):
    """Columns that are read on demand.

    Attributes:
        where: used at the start of messages.
        names: of the columns.
        notes: messages for the user, such as a missing header.
    """

    where: str
    names: list[str]
    notes: list[str]

    def read(self, kinds: Mapping[str, ColumnKind]) -> dict[str, Any]:
        """Columns by name: numbers and times (rows,), NaN where missing, and labels."""
        ...

    def place(self, row: int) -> str:
        """The position of a row, for messages."""
        ...


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name; text may be compressed (``.gz``)."""
    return path.name.lower().removesuffix(".gz").endswith(TABLE_ENDINGS)


class _BadCellError(Exception):
    """What is wrong with a cell: its row in the piece that was added, and a message."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


# --- text -----------------------------------------------------------------------------------------


class TextTable:
    """A text file with one row per line: CSV, TSV, or whitespace-separated columns.

    The separator is inferred from the first line. A first line of numbers is not a header: four
    or five columns are then frame, id, x, y and z; otherwise they are called 1, 2, ... Lines that
    begin with # are comments, but the last one above numbers is their header if it has as many
    words.

    Args:
        path: of the file; ``.gz`` is decompressed while reading.
        inside: whether the file is in a folder that the user named, see :func:`open_regular`.
    """

    def __init__(self, path: Path, *, inside: bool = False) -> None:
        self.path, self.inside, self.where = path, inside, str(path)
        self.notes: list[str] = []
        first, comment = self._first_lines()
        self.separator = _separator(first)
        words = self._words(first)
        self.header = not all(map(_is_number, words))
        if self.header and len(words) == 1:
            raise InputError(
                f"{path}: its first line is one word, {shortened(words[0])}; expected columns with "
                "commas, semicolons, tabs or blanks between them."
            )
        if len(words) > _MOST_COLUMNS:
            raise InputError(f"{path}: has {len(words)} columns, and {_MOST_COLUMNS} are the most.")
        above = self._words(comment) if comment else []
        if self.header or len(above) == len(words):
            named = words if self.header else above
            self.names = [name or f"column {i}" for i, name in enumerate(named, start=1)]
        elif len(words) in (4, 5):
            self.names = list(BY_PLACE[: len(words)])
            self.notes.append(f"no header: the columns are taken as {', '.join(self.names)}")
        else:
            self.names = [str(i) for i in range(1, len(words) + 1)]

    def _first_lines(self) -> tuple[str, str | None]:
        """The first line that is neither empty nor a comment, and the last comment above it."""
        comment = None
        with self._lines() as lines:
            for line in islice(lines, _FIRST_LINES):
                if line.startswith("#"):
                    comment = line.lstrip("#")
                elif line.strip():
                    return line, comment
        raise InputError(f"{self.path}: is an empty table.")

    def _words(self, line: str) -> list[str]:
        words = [word.strip() for word in next(self._split(iter([line])), [])]
        return words[:-1] if len(words) > 1 and not words[-1] else words  # a separator at the end

    def _split(self, lines: Iterator[str]) -> Iterator[list[str]]:
        if self.separator is None:
            return map(str.split, lines)
        return csv.reader(lines, delimiter=self.separator, skipinitialspace=True)

    @contextmanager
    def _lines(self) -> Iterator[Iterator[str]]:
        with open_regular(self.path, inside=self.inside) as file:
            packed = self.path.suffix.lower() == ".gz"
            raw: Any = gzip.GzipFile(fileobj=file) if packed else file
            try:
                text = io.TextIOWrapper(raw, encoding="utf-8-sig")
                yield chain.from_iterable(self._blocks(text))
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self.path}: is not text in UTF-8 ({error.reason}); save it as UTF-8."
                ) from None
            except (csv.Error, gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise InputError(f"{self.path}: cannot be read ({reason(error)}).") from None

    def _blocks(self, text: io.TextIOWrapper) -> Iterator[list[str]]:
        """Lines in blocks; an endless line is not read to its end."""
        rest = ""
        while block := text.read(_BLOCK):
            lines = (rest + block).split("\n")
            rest = lines.pop()
            if len(rest) > _BLOCK:
                raise InputError(f"{self.path}: a line is longer than {_BLOCK:,} characters.")
            yield lines
        yield [rest]

    def _rows(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """The rows below the header; comments become empty rows."""
        rows = self._split("" if line.startswith("#") else line for line in lines)
        if self.header:
            next(filter(any, rows), None)
        return rows

    def read(self, kinds: Mapping[str, ColumnKind]) -> dict[str, Any]:
        """Columns by name; see :class:`ColumnTable`."""
        collectors = {name: _COLLECTORS[kind](name) for name, kind in kinds.items()}
        places = [self.names.index(name) for name in kinds]
        done = 0
        with self._lines() as lines:
            rows = self._rows(lines)
            while chunk := list(islice(rows, _CHUNK)):
                try:
                    chunk = self._even(chunk)
                    columns = list(zip(*chunk, strict=True)) or [()] * len(self.names)
                    for place, collector in zip(places, collectors.values(), strict=True):
                        collector.add(columns[place])
                except _BadCellError as bad:
                    raise InputError(f"{self.place(done + bad.row)}: {bad}.") from None
                done += len(chunk)
                if done // _CHUNK % _CHUNKS == 0:
                    check_memory(done * len(kinds), self.path)
        for collector in collectors.values():
            self.notes += [note for note in collector.notes if note not in self.notes]
        return {name: collector.finish() for name, collector in collectors.items()}

    def _even(self, chunk: list[list[str]]) -> list[list[str]]:
        """Drop empty rows, and check that all others have as many words as there are columns."""
        width = len(self.names)
        if set(map(len, chunk)) == {width} and all(map(any, chunk)):
            return chunk
        chunk = [words for words in chunk if any(words)]
        for i, words in enumerate(chunk):
            if len(words) < width or any(words[width:]):
                hint = "; decimal commas need another separator" if len(words) > width else ""
                raise _BadCellError(i, f"expected {width} columns, found {len(words)}{hint}")
            del words[width:]
        return chunk

    def place(self, row: int) -> str:
        """The line number of a row."""
        count = 0

        def counted(lines: Iterator[str]) -> Iterator[str]:
            nonlocal count
            for line in lines:
                count += 1
                yield line

        with self._lines() as lines:
            next(islice(filter(any, self._rows(counted(lines))), row, None), None)
        return f"{self.path}, line {count}"


def _separator(line: str) -> str | None:
    """The separator of a first line: a tab, semicolon, comma, or whitespace (None)."""
    candidates = [sign for sign in ("\t", ";", ",") if sign in line]
    for sign in (*candidates, None):
        words = line.split() if sign is None else next(csv.reader([line], delimiter=sign))
        if len(words) > 1 and all(_is_number(word) for word in words if word.strip()):
            return sign
    return candidates[0] if candidates else None


def _is_number(word: str) -> bool:
    try:
        float(word.replace(",", ".", 1))
    except ValueError:
        return False
    return True


# --- columns, piece by piece ----------------------------------------------------------------------


class _Numbers:
    """Collects a column of numbers; words such as NA are NaN, 1,5 is 1.5."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.numbers = array("d")  # grows in place

    def add(self, words: Sequence[str]) -> None:
        known = len(self.numbers)
        try:
            self.numbers.extend(map(float, words))
        except ValueError:
            del self.numbers[known:]
            self.numbers.extend(self._with_care(words))

    def _with_care(self, words: Sequence[str]) -> list[float]:
        numbers, points, commas = [math.nan] * len(words), False, False
        for i, word in enumerate(words):
            if word.strip().lower() in _MISSING:
                continue
            points, commas = points or "." in word, commas or "," in word
            if points and commas:
                raise _BadCellError(
                    i, f"{self.name}: has decimal points and commas, {shortened(word)}"
                )
            try:
                numbers[i] = float(word.replace(",", "."))
            except ValueError:
                raise _BadCellError(
                    i, f"{self.name}: expected a number, found {shortened(word)}"
                ) from None
        if commas and not self.notes:
            self.notes.append("commas inside numbers are decimal points")
        return numbers

    def finish(self) -> NDArray[np.float64]:
        return np.asarray(self.numbers)


class _Times(_Numbers):
    """Collects a column of times: numbers, or dates as seconds since 1970."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.dates: _Dates | None = None

    def add(self, words: Sequence[str]) -> None:
        if self.dates is None and not self.numbers and words and not _is_number(words[0]):
            self.dates = _Dates()
        if self.dates is None:
            super().add(words)
            return
        self.notes = ["dates are read as seconds"]
        for i, word in enumerate(words):
            try:
                self.numbers.append(self.dates[word])
            except ValueError:
                raise _BadCellError(
                    i,
                    f"{self.name}: expected a number or a date such as 2024-05-31T12:00:00, found "
                    f"{shortened(word)}",
                ) from None


class _Dates(dict[str, float]):
    """Seconds since 1970 by the text of a date; dates without a time zone are in UTC."""

    def __missing__(self, word: str) -> float:
        date = datetime.fromisoformat(word.strip())
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        self[word] = (date - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
        return self[word]


class _Labelled:
    """Collects a column of labels."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.index = _Index()
        self.codes = array("i")

    def add(self, words: Sequence[str]) -> None:
        known = len(self.index)
        self.codes.extend(map(self.index.__getitem__, map(str.strip, words)))
        if len(self.index) == known:
            return
        for word in islice(self.index, known, None):
            if word.lower() in _MISSING or len(word) > _LONGEST_LABEL:
                row = self.codes.index(self.index[word]) - (len(self.codes) - len(words))
                what = "is missing" if len(word) <= _LONGEST_LABEL else "is longer than a name"
                raise _BadCellError(row, f"{self.name}: {what}")

    def finish(self) -> Labels:
        return Labels(np.asarray(self.codes), list(self.index))


class _Index(dict[str, int]):
    """Numbers words in order of appearance."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]


_COLLECTORS: dict[ColumnKind, type[_Numbers | _Labelled]] = {
    "number": _Numbers,
    "time": _Times,
    "label": _Labelled,
}


# --- memory ---------------------------------------------------------------------------------------


class ArrayTable:
    """Columns in memory: a data frame, a dictionary of arrays, or a structured array.

    Args:
        data: of pandas, polars, pyarrow or NumPy, or anything that maps names to columns.
        where: used at the start of messages.
    """

    def __init__(self, data: Any, where: str = "table") -> None:
        self.where = where
        self.notes: list[str] = []
        if any(name is not None for name in getattr(getattr(data, "index", None), "names", ())):
            data = data.reset_index()  # for pandas: frames and ids may be the index
        if isinstance(data, Mapping):
            keys = list(data)
        elif isinstance(data, np.ndarray) and data.dtype.names:
            keys = list(data.dtype.names)
        elif hasattr(data, "column_names"):
            keys = list(data.column_names)
        elif hasattr(data, "columns") and hasattr(data, "__getitem__"):
            keys = list(data.columns)
        else:
            raise InputError(
                f"{where}: expected a data frame or a dictionary of columns, found a "
                f"{type(data).__name__}."
            )
        self.data, self._keys = data, {str(key): key for key in keys}
        self.names = [str(key) for key in keys]

    def read(self, kinds: Mapping[str, ColumnKind]) -> dict[str, Any]:
        """Columns by name; see :class:`ColumnTable`."""
        columns: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for name, kind in kinds.items():
            try:
                array = _as_array(self.data[self._keys[name]])
            except Exception as error:  # (any class may have its own columns)
                raise InputError(f"{name}: cannot be made an array ({reason(error)}).") from None
            if array.ndim != 1:
                raise InputError(f"{name}: expected one value in each row, found {array.shape}.")
            lengths[name] = len(array)
            try:
                columns[name] = (
                    _labels(name, array) if kind == "label" else self._numbers(name, kind, array)
                )
            except _BadCellError as bad:
                raise InputError(f"{self.place(bad.row)}: {bad}.") from None
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InputError(f"{self.where}: its columns have different lengths: {found}.")
        return columns

    def _numbers(self, name: str, kind: ColumnKind, array: NDArray[Any]) -> NDArray[np.float64]:
        if array.dtype.kind in "iufb":
            return np.asarray(array, dtype=np.float64)
        if array.dtype.kind in "mM":
            missing = np.isnat(array)
            seconds = array.astype(f"{array.dtype.kind}8[ns]").astype(np.int64) / 1e9
            return np.where(missing, np.nan, seconds)
        if array.dtype.kind not in "OU":
            raise InputError(f"{name}: expected numbers, found values of type {array.dtype}.")
        collector = _COLLECTORS[kind](name)
        if len(array):
            collector.add([str(value) for value in array.tolist()])
        self.notes += collector.notes
        finished = collector.finish()
        assert isinstance(finished, np.ndarray)
        return finished

    def place(self, row: int) -> str:
        """The number of a row, from 0."""
        return f"{self.where}, row {row}"


def _as_array(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    made = np.asarray(values)
    # NumPy would turn numbers mixed with texts into texts; keep them as they are.
    mixed = made.dtype.kind in "US" and not isinstance(values, np.ndarray)
    return np.asarray(values, dtype=object) if mixed else made


def _labels(name: str, array: NDArray[Any]) -> Labels:
    """Labels of an array of integers or of texts, but not of both."""
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise _BadCellError(int((~np.isfinite(array)).argmax()), f"{name}: is missing")
        whole = (array == np.floor(array)).all() and (np.abs(array) < 2**53).all()
        array = array.astype(np.int64) if whole else array.astype(str)
    if array.dtype.kind in "iub":
        values, codes = np.unique(array, return_inverse=True)
        return Labels(codes.astype(np.int32), values.astype(object).tolist())
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "OU":
        raise InputError(f"{name}: expected numbers or texts, found values of type {array.dtype}.")
    values = array.tolist()
    missing = [value is None for value in values]
    if any(missing):
        raise _BadCellError(missing.index(True), f"{name}: is missing")
    texts = [isinstance(value, str) for value in values]
    if any(texts) and not all(texts):
        row = texts.index(not texts[0])
        raise _BadCellError(
            row,
            f"{name}: changes its type, {shortened(values[0])} and {shortened(values[row])}; make "
            "all of them numbers, or all texts",
        )
    collector = _Labelled(name)
    if values:
        collector.add([str(value) for value in values])
    return collector.finish()


# --- labels as numbers ----------------------------------------------------------------------------

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?|[+-]?[0-9](\.[0-9]+)?[eE][+-]?[0-9]{1,2}")
MOST_NUMBER = 2**53


def whole_numbers(values: Sequence[Any]) -> list[int] | None:
    """The labels as integers from 0 on, or None if any of them is not one.

    Numbers may be written 1, 1.0 or 1.0e+00.
    """
    numbers = []
    for value in values:
        if isinstance(value, str):
            if not _WHOLE.fullmatch(value):
                return None
            number = float(value)
            if number != int(number):
                return None
            value = int(value) if value.lstrip("+-").isdigit() else int(number)
        if not 0 <= value <= MOST_NUMBER:
            return None
        numbers.append(int(value))
    return numbers
