"""A data set on disk: a folder of shards, each of plain ``.npy`` files and a ``meta.json``.

NumPy maps such files into memory, so that a window is read without loading the rest, with no
further package; a shard is written under a temporary name and renamed when it is whole, so that a
folder without the temporary name is always complete. A cluster makes shards apart; together in one
folder they are the data set, there is nothing to merge.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from spacetime_en.errors import InputError
from spacetime_en.files import new_whole

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import Trajectories

META = "meta.json"


class Concatenated:
    """Memory-mapped arrays joined along their first axis; only what is asked for is read."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), *parts[0].shape[1:])
        self.ndim, self.dtype = len(self.shape), parts[0].dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """As NumPy would; ``a[rows]`` and ``a[rows, frames]`` read no more than they return."""
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
    """Writes one shard piece by piece; it appears under its name only when it is whole.

    Used as a context manager: ``with ShardWriter(...) as shard: shard.append(part)``.

    Args:
        folder: of the data set.
        shard, shards: the number of this shard, and of all.
        num: how many trajectories it will hold.
    """

    def __init__(self, folder: Path, shard: int, shards: int, num: int) -> None:
        self.shard, self.shards, self.num = shard, shards, num
        self.statistics: dict[str, Any] | None = None
        self._target = folder / shard_name(shard, shards)
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        self._spec: dict[str, Any] = {}
        self._lengths: list[int] = []

    def __enter__(self) -> Self:
        self._folder = self._stack.enter_context(whole_folder(self._target))
        return self

    def append(self, part: Trajectories) -> None:
        """Write further trajectories of the shard."""
        self._spec = {
            "steps": part.steps.tolist(),
            "times": part.times.tolist(),
            "box": None if part.box is None else part.box.tolist(),
            "meta": part.meta,
        }
        if part.lengths is not None:
            self._lengths += part.lengths.tolist()
            self._spec["lengths"] = self._lengths
        for name, stacked in {"x": part.x, "v": part.v, **part.attributes}.items():
            array = np.ascontiguousarray(stacked, dtype=np.float64)
            if name not in self._files:
                file = self._stack.enter_context((self._folder / f"{name}.npy").open("wb"))
                shape = (self.num, *array.shape[1:])
                header = {"descr": "<f8", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                self._files[name] = file
            self._files[name].write(array.astype("<f8", copy=False).data)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            for file in self._files.values():
                file.close()
            meta = {
                "shard": self.shard,
                "shards": self.shards,
                "num": self.num,
                "arrays": list(self._files),
                "checksum": checksum(
                    [self._folder / f"{name}.npy" for name in self._files], self._spec
                ),
                "statistics": self.statistics,
                "spec": self._spec,
            }
            (self._folder / META).write_text(json.dumps(meta, indent=1))
        self._stack.__exit__(kind, error, trace)


def shard_name(shard: int, shards: int) -> str:
    """The name of a shard's folder."""
    return f"shard-{shard:05d}-of-{shards:05d}"


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` if the block ends well, and vanishes if not."""
    with new_whole(target) as folder:
        folder.mkdir()
        yield folder


def checksum(files: Iterable[Path], spec: dict[str, Any]) -> str:
    """SHA-256 over what is known of the data, and the contents of the files, in order."""
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def find_shards(folder: Path) -> list[Path]:
    """The whole shards in a folder, in order."""
    named = re.compile(r"shard-\d{5,}-of-\d{5,}")
    return sorted(p for p in folder.glob("shard-*-of-*") if named.fullmatch(p.name) and p.is_dir())


def read_meta(shard: Path) -> dict[str, Any]:
    """What a shard's ``meta.json`` says."""
    try:
        meta = json.loads((shard / META).read_text())
        fits = (
            all(isinstance(meta[k], int) for k in ("shard", "shards", "num"))
            and all(isinstance(name, str) for name in meta["arrays"])
            and {"steps", "times", "box", "meta"} <= set(meta["spec"])
            and {"checksum", "statistics"} <= set(meta)
            and all((shard / f"{name}.npy").is_file() for name in meta["arrays"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise InputError(f"{shard / META}: is missing or not a data set's; make it again.")
    return dict(meta)


def mapped(path: Path) -> NDArray[Any]:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is truncated or no array file ({error}).") from None
