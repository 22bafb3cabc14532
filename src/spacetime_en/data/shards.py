"""A data set on disk: a folder of shards, each of plain ``.npy`` files and a ``meta.json``.

NumPy memory-maps such files, so that a window is read without loading the rest, and without
further dependencies. A shard is written under a temporary name and renamed once complete, so a
shard under its final name is always complete. A cluster writes shards independently; together in
one folder they are the data set, with no merging step.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import create_atomically
from spacetime_en._util.schema import (
    Count,
    PositiveInt,
    check_format,
    check_name,
    check_no_link,
    open_regular,
    parse_json,
    read_text,
    reason,
    shortened,
    typed,
)
from spacetime_en.data.npy import read_header
from spacetime_en.data.valid import MOST_ATTRIBUTES, MOST_STEPS

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import Trajectories

META = "meta.json"
SHARD_FORMAT = 2  # of a shard: 1 lacked observed, ids, frame_attributes (and at first this number)
_STORED = {"observed": "|b1", "ids": "<i8"}  # all other arrays are of real numbers
Step = Annotated[int, msgspec.Meta(ge=-MOST_STEPS, le=MOST_STEPS)]


@dataclass(frozen=True)
class Spec:
    """The meaning of a shard's arrays; fields as in ``Trajectories``.

    Args:
        lengths: of this shard's runs; None: all have T frames.
        frame_attributes: which of the arrays are attributes that change from frame to frame.
    """

    steps: list[Step]
    times: list[float]
    box: list[list[float]] | None
    meta: dict[str, Any]
    lengths: list[PositiveInt] | None = None
    frame_attributes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ShardMeta:
    """The contents of ``meta.json``.

    Args:
        shard, shards: the index of this shard, and the number of shards.
        num: number of trajectories in it.
        arrays: their names, one file each; x and v are among them.
        checksum: see :func:`checksum`.
        statistics: of the data, such as the drift of a simulation.
        spec: the meaning of the arrays.
        format: of the folder.
    """

    shard: Count
    shards: PositiveInt
    num: PositiveInt
    arrays: list[str]
    checksum: str
    statistics: dict[str, Any] | None
    spec: Spec
    format: int = 1


class Concatenated:
    """Memory-mapped arrays joined along their first axis; only what is indexed is read."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), *parts[0].shape[1:])
        self.ndim, self.dtype = len(self.shape), parts[0].dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Index as in NumPy; ``a[rows]`` and ``a[rows, frames]`` read no more than they return."""
        rows, *rest = index if isinstance(index, tuple) else (index,)
        if rows is Ellipsis or rows is None:
            return np.asarray(np.asarray(self)[index])
        if any(isinstance(r, slice) or r is Ellipsis or r is None for r in rest):
            leading = (slice(None),) * np.ndim(np.arange(len(self))[rows])
            return np.asarray(self[rows][(*leading, *rest)])
        rows = np.arange(len(self))[rows]
        which = np.searchsorted(self.ends, rows, side="right")
        if rows.ndim == 0:
            return np.asarray(self.parts[int(which)][(rows - self._start(which), *rest)])
        out: NDArray[Any] | None = None
        for part in np.unique(which):
            here = which == part
            inner = [r if np.ndim(r) == 0 else np.broadcast_to(r, rows.shape)[here] for r in rest]
            read = self.parts[part][(rows[here] - self._start(part), *inner)]
            if out is None:
                out = np.empty((*rows.shape, *read.shape[1:]), dtype=read.dtype)
            out[here] = read
        return np.empty((0, *self.shape[1:])) if out is None else out

    def _start(self, part: Any) -> Any:
        return self.ends[part] - len(self.parts[part])

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.concatenate(self.parts).astype(dtype or self.parts[0].dtype)


class ShardWriter:
    """Writes one shard piece by piece; it appears under its name only once complete.

    Used as a context manager: ``with ShardWriter(...) as shard: shard.append(part)``.

    Args:
        folder: of the data set.
        shard, shards: the index of this shard, and the number of shards.
        num: how many trajectories it will hold.
    """

    def __init__(self, folder: Path, shard: int, shards: int, num: int) -> None:
        self.shard, self.shards, self.num = shard, shards, num
        self.statistics: dict[str, Any] | None = None
        self._target = folder / shard_name(shard, shards)
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        self._spec: Spec | None = None
        self._lengths: list[int] = []

    def __enter__(self) -> Self:
        self._folder = self._stack.enter_context(whole_folder(self._target))
        return self

    def append(self, part: Trajectories) -> None:
        """Write further trajectories of the shard."""
        box = None if part.box is None else part.box.tolist()
        self._spec = Spec(
            part.steps.tolist(),
            part.times.tolist(),
            box,
            part.meta,
            frame_attributes=list(part.frame_attributes),
        )
        try:
            json.dumps(part.meta)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"meta: cannot be written as JSON ({reason(error)}).") from None
        whole = [len(part.steps)] * len(part)
        self._lengths += whole if part.lengths is None else part.lengths.tolist()
        arrays = {"x": part.x, "v": part.v, **part.attributes, **part.frame_attributes}
        arrays |= {"observed": part.observed} if part.observed is not None else {}
        arrays |= {"ids": part.ids} if part.ids is not None else {}
        if self._files and arrays.keys() != self._files.keys():
            raise InputError(f"{self._target}: its parts have different arrays; give all the same.")
        for name, values in arrays.items():
            stored = _STORED.get(name, "<f8")
            array = np.ascontiguousarray(values, dtype=stored)
            if name not in self._files:
                named = self._folder / f"{check_name(name, 'attributes')}.npy"
                file = self._stack.enter_context(named.open("xb"))
                shape = (self.num, *array.shape[1:])
                header = {"descr": stored, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                self._files[name] = file
            self._files[name].write(array.data)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._finish()
        self._stack.__exit__(kind, error, trace)

    def _finish(self) -> None:
        """Write ``meta.json`` next to the arrays."""
        for file in self._files.values():
            file.close()
        assert self._spec is not None, "a shard without trajectories"
        if any(length != len(self._spec.steps) for length in self._lengths):
            self._spec = replace(self._spec, lengths=self._lengths)
        files = [self._folder / f"{name}.npy" for name in self._files]
        meta = ShardMeta(
            self.shard,
            self.shards,
            self.num,
            list(self._files),
            checksum(files, self._spec),
            self.statistics,
            self._spec,
            # Older versions read what they know, and report that they do not know the rest.
            format=2 if self._spec.frame_attributes or "observed" in self._files else 1,
        )
        (self._folder / META).write_text(json.dumps(asdict(meta), indent=1), encoding="utf-8")


def shard_name(shard: int, shards: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{shard:05d}-of-{shards:05d}"


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` if the block succeeds, and is deleted otherwise."""
    with create_atomically(target) as folder:
        folder.mkdir()
        yield folder


def checksum(files: Iterable[Path], spec: Spec) -> str:
    """SHA-256 of the spec and of the contents of the files, in order."""
    optional = ("lengths", "frame_attributes")
    described = {key: value for key, value in vars(spec).items() if value or key not in optional}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for path in files:
        with open_regular(path, inside=True) as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def find_shards(folder: Path) -> list[Path]:
    """The complete shards in a folder, in order."""
    named = re.compile(r"shard-[0-9]{5,}-of-[0-9]{5,}")
    return sorted(p for p in folder.glob("shard-*-of-*") if named.fullmatch(p.name) and p.is_dir())


def is_whole(folder: Path) -> bool:
    """Whether a folder holds all shards of a set, judging by their names."""
    shards = find_shards(folder)
    return bool(shards) and len(shards) == int(shards[0].name.rsplit("-", 1)[1])


def read_meta(shard: Path) -> ShardMeta:
    """Read and check the ``meta.json`` of a shard."""
    check_no_link(shard)
    path = shard / META
    if not path.exists():
        raise InputError(f"{path}: is missing; make the data set again.")
    entries = parse_json(read_text(path, inside=True), str(path))
    if isinstance(entries, dict):
        check_format(entries.get("format", SHARD_FORMAT), SHARD_FORMAT, str(path))
    meta: ShardMeta = typed(entries, ShardMeta, str(path))
    for name in meta.arrays[: MOST_ATTRIBUTES + 5]:
        check_name(name, f"{path}: arrays")
    if not {"x", "v"} <= set(meta.arrays) or len(set(meta.arrays)) < len(meta.arrays):
        raise InputError(
            f"{path}: arrays: expected x, v and others, each once, found {shortened(meta.arrays)}."
        )
    changing = meta.spec.frame_attributes
    if len(set(changing)) < len(changing) or not set(changing) <= set(meta.arrays) - {"x", "v"}:
        raise InputError(
            f"{path}: spec.frame_attributes: expected names of arrays, each once, found "
            f"{shortened(changing)}."
        )
    if shard.name != shard_name(meta.shard, meta.shards):
        raise InputError(
            f"{path}: says that it is of {shard_name(meta.shard, meta.shards)}; a shard cannot be "
            "renamed."
        )
    return meta


def mapped(path: Path) -> NDArray[Any]:
    """A memory-mapped array of a shard: nothing is read before it is indexed."""
    with open_regular(path, inside=True) as file:
        header = read_header(file, path.stat().st_size, path)
        kinds = {"|b1": "booleans", "<i8": "whole numbers of 8 bytes, little-endian"}
        stored = _STORED.get(path.stem, "")
        allowed = (stored,) if stored else ("<f8", "<f4")
        if header.dtype.str not in allowed or header.fortran_order:
            words = kinds.get(stored, "real numbers of 8 or 4 bytes, little-endian")
            raise InputError(
                f"{path}: expected {words}, row by row, found "
                f"{header.dtype.str}{' column by column' if header.fortran_order else ''}."
            )
        if 0 in header.shape:
            raise InputError(f"{path}: is empty, shape {header.shape}.")
        return np.memmap(file, header.dtype, "r", file.tell(), header.shape)
