"""Trajectories: positions and velocities of many runs, in memory or on disk.

On disk a data set is a folder of shards, each a folder of plain ``.npy`` files and a ``meta.json``
with their checksum. NumPy maps such files into memory, so that a window is read without loading
the rest, with no further package; a shard is written under a temporary name and renamed when it
is whole, so that a folder without the temporary name is always complete. A cluster makes shards
apart; together in one folder they are the data set, there is nothing to merge.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en import geometry
from spacetime_en.errors import InputError

META = "meta.json"
DIFFERENCES = "differences"  # meta["velocities"] where v was not measured


class Stacked(Protocol):
    """An array, or several along their first axis."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, index: Any) -> NDArray[Any]: ...
    def __len__(self) -> int: ...


class _Concatenated:
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


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Runs of the same system, with the same nodes at the same times.

    Args:
        x: positions, (num, T, N, n).
        v: velocities, (num, T, N, n).
        steps: the number of time steps done at each frame, (T,), increasing whole numbers.
        times: the time of each frame, (T,).
        attributes: what else is known of nodes (num, N) or pairs of nodes (num, N, N), by name:
            ``charge``, ``mass``, ``spring``, ...
        meta: where the data come from: system, seed, scheme, units, version, ...
        box: periodic cell, (n, n) rows, or None.
        statistics: what the shards say of themselves, such as the drift of a simulation.
        lengths: the number of frames of each run, (num,), if they differ: frames after them only
            fill up the arrays. None: all frames of all runs.
    """

    x: Stacked
    v: Stacked
    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    attributes: dict[str, Stacked] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    box: NDArray[np.float64] | None = None
    statistics: tuple[dict[str, Any], ...] = ()
    checksums: tuple[str, ...] = ()  # of the shards, if it was opened from disk
    lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def charge(self) -> Stacked:
        """Charges, (num, N)."""
        if "charge" not in self.attributes:
            raise InputError("charge: these trajectories have none.")
        return self.attributes["charge"]

    @property
    def measured_velocities(self) -> bool:
        """Whether v was given, and not taken from differences of frames."""
        return self.meta.get("velocities") != DIFFERENCES

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything inside: of the shards' checksums, or of the arrays in memory."""
        names = [*self.attributes, self.measured_velocities]
        known = hashlib.sha256(repr((self.checksums, names)).encode())
        if not self.checksums:
            own: list[Any] = [self.x, self.v, self.steps, self.times, *self.attributes.values()]
            own += [array for array in (self.box, self.lengths) if array is not None]
            for array in own:
                known.update(repr(array.shape).encode())
                known.update(np.ascontiguousarray(array).data)
        return known.hexdigest()

    def __repr__(self) -> str:
        names = ", ".join(self.attributes)
        return f"Trajectories(x={self.x.shape}, steps={_brief(self.steps)}, attributes=[{names}])"

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        v: Any = None,
        *,
        times: Any = None,
        steps: Any = None,
        attributes: dict[str, Any] | None = None,
        box: Any = None,
        meta: dict[str, Any] | None = None,
    ) -> Trajectories:
        """From arrays of your own.

        Args:
            x: positions, (num, T, N, n), or (T, N, n) for a single run.
            v: velocities of the same shape; None: differences of the frames given (backward, the
                first frame takes the second's), in a box by the short way. Windows then take
                differences of their own frames only.
            times: (T,); None: the steps, times what makes x and v fit each other if v is given.
            steps: (T,) whole numbers; None: 0, 1, ..., T - 1.
            attributes: arrays (N,) or (num, N), or of pairs (num, N, N).
            box: edge lengths (n,), or cell vectors as rows (n, n).
            meta: anything worth keeping, such as units.
        """
        x = np.asarray(x, dtype=float)
        x = x[None] if x.ndim == 3 else x
        if x.ndim != 4 or 0 in x.shape:
            raise InputError(f"x: expected shape (num, T, N, n) or (T, N, n), found {x.shape}.")
        num, T, N, n = x.shape
        if steps is not None and (np.asarray(steps) != np.floor(steps)).any():
            raise InputError("steps: expected whole numbers; give the times of frames as times.")
        steps = np.arange(T) if steps is None else np.asarray(steps, dtype=np.int64)
        guessed = times is None
        times = np.asarray(steps if guessed else times, dtype=float)
        for name, value in (("steps", steps), ("times", times)):
            if value.shape != (T,) or not (np.diff(value) > 0).all():
                raise InputError(f"{name}: expected {T} increasing numbers, found {_brief(value)}.")
        if box is not None:
            box = np.asarray(box, dtype=float)
            box = np.diag(box) if box.ndim == 1 else box
            if box.shape != (n, n) or np.linalg.det(box) == 0:
                raise InputError(f"box: expected {n} edge lengths or {n} cell vectors.")
        meta = dict(meta or {})
        if v is None:
            v = _velocities(x, times, box)
            meta["velocities"] = DIFFERENCES
        v = np.asarray(v, dtype=float)
        v = v[None] if v.ndim == 3 else v
        if v.shape != x.shape:
            raise InputError(f"v: expected the shape of x, {x.shape}, found {v.shape}.")
        for name, value in (("x", x), ("v", v)):
            bad = ~np.isfinite(value).all(-1)
            if bad.any():
                run, frame, node = np.argwhere(bad)[0].tolist()
                raise InputError(
                    f"{name}: NaN or infinite values at run {run}, frame {frame}, node {node} "
                    f"({int(bad.sum())} in all); mend or cut them out."
                )
        if guessed and "velocities" not in meta:
            times = times * _time_step(x, v, steps, box)
            meta["time_step"] = "fitted to positions and velocities"
        spread: dict[str, Stacked] = {}
        for name, value in (attributes or {}).items():
            array = np.asarray(value, dtype=float)
            if name in ("x", "v") or not name.isidentifier():
                raise InputError(f"attributes: {name!r} cannot be the name of one.")
            if not np.isfinite(array).all():
                raise InputError(f"{name}: expected finite numbers, found NaN or infinity.")
            array = np.broadcast_to(array, (num, N)) if array.shape == (N,) else array
            if array.shape not in ((num, N), (num, N, N)):
                raise InputError(
                    f"{name}: expected shape {(N,)}, {(num, N)} or {(num, N, N)}, "
                    f"found {array.shape}."
                )
            spread[name] = array
        return cls(x, v, steps, times, spread, meta, box)

    @classmethod
    def from_runs(
        cls, runs: Sequence[Any], *, time_step: float = 1.0, **options: Any
    ) -> Trajectories:
        """From runs of different lengths, whose velocities are differences of their frames.

        Args:
            runs: positions of each, (T_r, N, n).
            time_step: between frames.
            options: ``attributes``, ``box`` and ``meta`` of :meth:`from_arrays`.
        """
        arrays = [np.asarray(run, dtype=float) for run in runs]
        if not arrays or len({a.shape[1:] for a in arrays}) != 1 or min(map(len, arrays)) < 2:
            shapes = sorted({a.shape for a in arrays})[:3]
            raise InputError(f"runs: expected (T, N, n) with the same N, n, found {shapes}.")
        lengths = np.array([len(a) for a in arrays])
        longest = int(lengths.max())
        # The last frame fills up: finite, at rest, and never part of a window.
        filled = [np.concatenate([a, np.repeat(a[-1:], longest - len(a), axis=0)]) for a in arrays]
        made = cls.from_arrays(
            np.stack(filled), times=time_step * np.arange(longest, dtype=float), **options
        )
        return replace(made, lengths=None if (lengths == longest).all() else lengths)

    # --- on disk --------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write to a new folder, as one shard."""
        if find_shards(Path(folder)):
            raise InputError(f"{folder}: exists already; choose another folder or delete it.")
        with ShardWriter(Path(folder), 0, 1, len(self)) as shard:
            shard.append(self)
        return Path(folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, verify: bool = False) -> Trajectories:
        """Open a data set without reading it; `verify` compares its checksums, which reads all."""
        folder = Path(folder)
        if folder.is_file():
            raise InputError(
                f"{folder}: is a file; make a data set of it first: spacetime data import "
                f"{folder.name} --out DIR."
            )
        if not folder.is_dir():
            raise InputError(f"{folder}: expected a data set's folder, found none.")
        found = find_shards(folder)
        if not found:
            raise InputError(f"{folder}: holds no data set (no shard-*-of-* inside).")
        metas = [read_meta(shard) for shard in found]
        count = metas[0]["shards"]
        missing = sorted(set(range(count)) - {meta["shard"] for meta in metas})
        if missing or len(found) != count or any(m["shards"] != count for m in metas):
            raise InputError(
                f"{folder}: is not complete: {len(missing)} of {count} shards are missing, the "
                f"first is {missing[0] if missing else 'of another split'}; make it with "
                "the same command and --shard."
            )
        for shard, meta in zip(found, metas, strict=True):
            if meta["spec"] != metas[0]["spec"] or meta["arrays"] != metas[0]["arrays"]:
                raise InputError(f"{shard}: was made with other settings than its neighbours.")
            files = [shard / f"{name}.npy" for name in meta["arrays"]]
            if verify and checksum(files, meta["spec"]) != meta["checksum"]:
                raise InputError(
                    f"{shard}: its checksum does not fit; delete it and make it again."
                )

        def joined(name: str) -> Stacked:
            parts = [_map(shard / f"{name}.npy") for shard in found]
            for part, meta, shard in zip(parts, metas, found, strict=True):
                if len(part) != meta["num"] or part.shape[1:] != parts[0].shape[1:]:
                    raise InputError(f"{shard}: {name}.npy has another shape than it should.")
            return parts[0] if len(parts) == 1 else _Concatenated(parts)

        spec = metas[0]["spec"]
        own = [name for name in metas[0]["arrays"] if name not in ("x", "v")]
        box = None if spec.get("box") is None else np.array(spec["box"])
        x, v = joined("x"), joined("v")
        if x.shape != v.shape or x.shape[1] != len(spec["steps"]):
            raise InputError(f"{folder}: positions, velocities and steps do not fit each other.")
        return cls(
            x,
            v,
            np.array(spec["steps"], dtype=np.int64),
            np.array(spec["times"]),
            {name: joined(name) for name in own},
            spec["meta"],
            box,
            tuple(m["statistics"] for m in metas if m["statistics"]),
            tuple(m["checksum"] for m in metas),
            None if spec.get("lengths") is None else np.array(spec["lengths"], dtype=np.int64),
        )


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
            self._spec["lengths"] = part.lengths.tolist()
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
    if target.exists():
        raise InputError(f"{target}: exists already; choose another folder or delete it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def _map(path: Path) -> NDArray[Any]:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is truncated or no array file ({error}).") from None


def _velocities(x: NDArray[Any], times: NDArray[Any], box: NDArray[Any] | None) -> NDArray[Any]:
    """Backward differences of observed frames; the first frame takes the second's."""
    if x.shape[1] < 2:
        raise InputError("v: velocities by differences need at least two frames; give v.")
    v = np.diff(unwrap(x, box), axis=1) / np.diff(times)[None, :, None, None]
    return np.concatenate([v[:, :1], v], axis=1)


def unwrap(x: NDArray[Any], box: NDArray[Any] | None) -> NDArray[Any]:
    """Paths without jumps across the periodic boundary, (..., T, N, n)."""
    if box is None:
        return x
    paths = torch.from_numpy(np.ascontiguousarray(x)).reshape(-1, *x.shape[-3:])
    cell = torch.from_numpy(np.array(box, dtype=x.dtype)).expand(len(paths), -1, -1)
    return geometry.unwrap(paths, cell).reshape(x.shape).numpy()


def _time_step(
    x: NDArray[Any], v: NDArray[Any], steps: NDArray[Any], box: NDArray[Any] | None
) -> float:
    """The time of a step for which positions and velocities fit best; 1 if none does."""
    if x.shape[1] < 2:
        return 1.0
    moved = np.diff(unwrap(x, box), axis=1)
    mean_v = (v[:, 1:] + v[:, :-1]) / 2 * np.diff(steps)[None, :, None, None]
    step = float((moved * mean_v).sum() / max((mean_v * mean_v).sum(), 1e-300))
    return step if step > 0 else 1.0


def _brief(values: NDArray[Any]) -> str:
    items = [f"{v:g}" for v in values.ravel()]
    return f"[{', '.join(items if len(items) < 7 else [*items[:3], '...', items[-1]])}]"
