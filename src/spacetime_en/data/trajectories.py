"""Trajectories: positions and velocities of many runs, in memory or on disk.

How they are stored is described in :mod:`spacetime_en.data.shards`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import refuse_foreign
from spacetime_en._util.schema import Count, PositiveFloat, check_name, checked
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en.data.differences import time_step, velocities
from spacetime_en.data.limits import check_memory
from spacetime_en.data.shards import (
    Concatenated,
    ShardMeta,
    ShardWriter,
    checksum,
    find_shards,
    mapped,
    read_meta,
)
from spacetime_en.data.slots import check_ids
from spacetime_en.data.valid import (
    PER_FRAME,
    as_booleans,
    as_floats,
    as_integers,
    check_box,
    check_layout,
    check_single_precision,
    check_time_step,
    check_times,
    preview,
)

DIFFERENCES = "differences"  # meta["velocities"] where v was not measured
FAR = 16  # spreads from 0: at this distance float32 has lost four of its 24 bits


class LazyArray(Protocol):
    """An array in memory or on disk, of which only what is indexed is read."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, index: Any) -> NDArray[Any]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Runs (recordings) of a system, all at the same times.

    N is the number of nodes or, if they come and go, of slots: places that nodes occupy one after
    another, each from its first observation to its last.

    Args:
        x: positions, (num, T, N, n); 0 where nothing was observed.
        v: velocities, (num, T, N, n); likewise.
        steps: the number of time steps done at each frame, (T,), increasing integers.
        times: the time of each frame, (T,).
        attributes: constants of nodes (num, N) or of pairs of nodes (num, N, N), by name:
            ``charge``, ``mass``, ``spring``, ...
        meta: the origin of the data: system, seed, scheme, units, version, ...
        box: periodic cell, (n, n) rows, or None.
        statistics: of the shards, such as the drift of a simulation.
        lengths: the number of frames of each run, (num,), if they differ: later frames are padding.
            None: all runs have T frames.
        observed: True where a node was observed, (num, T, N). None: everywhere.
        ids: the number of the node in each slot in each frame, (num, T, N), also in gaps between
            its observations; -1: no node. None: slot i is node i throughout.
        frame_attributes: attributes of nodes that change from frame to frame, or that belong to
            the node in the slot, (num, T, N), by name.
    """

    x: LazyArray
    v: LazyArray
    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    attributes: dict[str, LazyArray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    box: NDArray[np.float64] | None = None
    statistics: tuple[dict[str, Any], ...] = ()
    checksums: tuple[str, ...] = ()  # of the shards, if opened from disk
    lengths: NDArray[np.int64] | None = None
    observed: LazyArray | None = None
    ids: LazyArray | None = None
    frame_attributes: dict[str, LazyArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_layout(self)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def charge(self) -> LazyArray:
        """Charges, (num, N)."""
        if "charge" not in self.attributes:
            raise InputError("charge: these trajectories have none.")
        return self.attributes["charge"]

    @property
    def measured_velocities(self) -> bool:
        """Whether v was given, rather than computed as differences of frames."""
        return self.meta.get("velocities") != DIFFERENCES

    @cached_property
    def frame_interval(self) -> int:
        """The most common gap between frames in ``steps``, the smallest in case of a tie."""
        gaps, counts = np.unique(np.diff(self.steps), return_counts=True)
        return int(gaps[counts.argmax()]) if len(gaps) else 1

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all contents: of the shards' checksums, or of the arrays in memory."""
        names = [*self.attributes, self.measured_velocities, *self.frame_attributes]
        digest = hashlib.sha256(repr((self.checksums, names)).encode())
        if not self.checksums:
            if "up" in self.meta:
                digest.update(repr(self.meta["up"]).encode())
            arrays: list[Any] = [self.x, self.v, self.steps, self.times, *self.attributes.values()]
            arrays += [self.box, self.lengths, self.observed, self.ids]
            arrays += self.frame_attributes.values()
            for array in filter(lambda array: array is not None, arrays):
                digest.update(repr(array.shape).encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def with_up(self, up: Sequence[float]) -> Trajectories:
        """The same data with this direction as ``meta["up"]``, and a fingerprint of their own."""
        meta = {**self.meta, "up": [float(u) for u in up]}
        own = (*self.checksums, f"up {meta['up']}") if self.checksums else ()
        return replace(self, meta=meta, checksums=own)

    @cached_property
    def origin(self) -> NDArray[np.float64]:
        """The origin of the coordinates that models read, (n,); 0 on axes where data are near 0.

        Positions may be metres from the equator, which single precision resolves only to half a
        metre. The whole data set shares one origin, so that a wall has the same coordinates in
        every window; it is a round number near the median of frames from all of the data.
        """
        num, T, _, n = self.x.shape
        if self.observed is None:
            ends = np.cumsum(np.full(num, T) if self.lengths is None else self.lengths)
            index = evenly_spaced_indices(int(ends[-1]), most=64).numpy()  # into all frames
            runs = np.searchsorted(ends, index, side="right")
            x = self.x[runs, index - (ends - np.diff(ends, prepend=0))[runs]].reshape(-1, n)
        else:
            populated = np.stack([self.observed[run].any(-1) for run in range(num)])
            runs, frames = np.nonzero(populated)
            index = evenly_spaced_indices(len(runs), most=64).numpy()
            runs, frames = runs[index], frames[index]
            x = self.x[runs, frames][self.observed[runs, frames]]
        x = x[np.isfinite(x).all(1)]
        if len(x) == 0:
            return np.zeros(n)
        centre = np.median(x, axis=0)
        # Medians, which are not affected by the zeros that stand for missing markers.
        spread = float(np.median(abs(x - centre), axis=0).max()) or float(abs(x - centre).max())
        unit = np.ldexp(0.5, np.frexp(spread)[1]) if spread else 1.0  # a power of two: exact
        return np.where(abs(centre) <= FAR * spread, 0.0, np.round(centre / unit) * unit)

    def __repr__(self) -> str:
        names = ", ".join([*self.attributes, *self.frame_attributes])
        return f"Trajectories(x={self.x.shape}, steps={preview(self.steps)}, attributes=[{names}])"

    @classmethod
    @checked
    def from_arrays(
        cls,
        x: Any,
        v: Any = None,
        *,
        times: Any = None,
        steps: Any = None,
        attributes: dict[Any, Any] | None = None,
        box: Any = None,
        meta: dict[Any, Any] | None = None,
        observed: Any = None,
        ids: Any = None,
        frame_attributes: dict[Any, Any] | None = None,
    ) -> Trajectories:
        """Build trajectories from arrays.

        Args:
            x: positions, (num, T, N, n), or (T, N, n) for a single run (and so for `v`,
                `observed`, `ids` and `frame_attributes`).
            v: velocities of the same shape; None: differences of each node's own observations
                (backward, the first copies the second's), in a box by the minimum image convention.
                Windows then take differences of their own frames only.
            times: (T,); None: the steps, scaled, if v is given, so that x and v fit each other.
            steps: (T,) integers; None: 0, 1, ..., T - 1.
            attributes: arrays (N,) or (num, N), or of pairs (num, N, N).
            box: edge lengths (n,), or cell vectors as rows (n, n).
            meta: anything worth keeping, such as units.
            observed: (num, T, N), True where a node was observed; None: where x is not NaN, or,
                given `ids`, where a node has the slot. Values given for places that were not
                observed are dropped.
            ids, frame_attributes: (num, T, N), see :class:`Trajectories`.
        """
        x = as_floats("x", x)
        single = x.ndim == 3
        x = x[None] if single else x
        if x.ndim != 4 or 0 in x.shape:
            raise InputError(f"x: expected shape (num, T, N, n) or (T, N, n), found {x.shape}.")
        num, T, N, n = x.shape
        meta = dict(meta or {})

        def per_frame(name: str, array: NDArray[Any]) -> NDArray[Any]:
            array = array[None] if single and array.ndim == 2 else array
            if array.shape != (num, T, N):
                raise InputError(f"{name}: expected shape {(num, T, N)}, found {array.shape}.")
            return array

        if ids is not None:
            ids = per_frame("ids", as_integers("ids", ids))
        if observed is not None:
            observed = per_frame("observed", as_booleans("observed", observed))
        elif np.isnan(x).any():
            observed, meta["missing"] = _where_not_nan(x), "nan"
        elif ids is not None:
            observed = ids >= 0
        if observed is not None:
            if not observed.any():
                raise InputError("x: no node was observed in any frame.")
            x = np.where(observed[..., None], x, 0.0)
        if ids is not None:
            check_ids(ids, observed)
        elif observed is not None and observed.all():
            observed = None
        check_single_precision("x", x)
        steps = np.arange(T) if steps is None else as_integers("steps", steps)
        guessed = times is None
        times = as_floats("times", steps if guessed else times)
        check_times(steps, times, T)
        if box is not None:
            box = as_floats("box", box)
            if box.ndim == 1 and not (box > 0).all():
                raise InputError(f"box: expected positive edge lengths, found {preview(box)}.")
            box = np.diag(box) if box.ndim == 1 else box
            check_box(box, n)
        if v is None:
            v = velocities(x, times, box, observed, ids)
            meta["velocities"] = DIFFERENCES
        v = as_floats("v", v)
        v = v[None] if v.ndim == 3 else v
        if v.shape != x.shape:
            raise InputError(f"v: expected the shape of x, {x.shape}, found {v.shape}.")
        if observed is not None:
            v = np.where(observed[..., None], v, 0.0)
        check_single_precision("v", v)
        if guessed and "velocities" not in meta:
            times = times * time_step(x, v, steps, box, observed, ids)
            meta["time_step"] = "fitted to positions and velocities"
        spread: dict[str, LazyArray] = {}
        for name, value in (attributes or {}).items():
            array = as_floats(check_name(name, "attributes"), value, kinds="iufb")
            array = np.broadcast_to(array, (num, N)) if array.shape == (N,) else array
            if array.shape not in ((num, N), (num, N, N)):
                raise InputError(
                    f"{name}: expected shape {(N,)}, {(num, N)} or {(num, N, N)}, "
                    f"found {array.shape}."
                )
            check_single_precision(name, array)
            spread[name] = array
        changing: dict[str, LazyArray] = {}
        for name, value in (frame_attributes or {}).items():
            array = as_floats(check_name(name, "frame_attributes"), value, kinds="iufb")
            array = per_frame(name, array)
            array = array if observed is None else np.where(observed, array, 0.0)
            check_single_precision(name, array, axes=PER_FRAME)
            changing[name] = array
        return cls(
            x,
            v,
            steps,
            times,
            spread,
            meta,
            box,
            observed=observed,
            ids=ids,
            frame_attributes=changing,
        )

    @classmethod
    @checked
    def from_runs(
        cls, runs: Sequence[Any], *, time_step: Any = 1.0, **options: Any
    ) -> Trajectories:
        """Build trajectories from runs of different lengths; velocities are differences of frames.

        Args:
            runs: positions of each, (T_r, N, n).
            time_step: between frames.
            options: ``attributes``, ``box`` and ``meta`` of :meth:`from_arrays`.
        """
        arrays = [as_floats(f"run {i}", run) for i, run in enumerate(runs)]
        shapes = {a.shape for a in arrays}
        if len({shape[1:] for shape in shapes}) != 1 or any(
            len(shape) != 3 or shape[0] < 2 for shape in shapes
        ):
            raise InputError(
                "runs: expected (T, N, n) with the same N, n, and at least two frames, found "
                f"{sorted(shapes)[:3]}."
            )
        lengths = np.array([len(a) for a in arrays])
        longest = int(lengths.max())
        check_memory(len(arrays) * longest * arrays[0][0].size, "runs, filled up to the longest,")
        # The last frame is the padding: finite, at rest, and never part of a window.
        filled = [np.concatenate([a, np.repeat(a[-1:], longest - len(a), axis=0)]) for a in arrays]
        filled_up = cls.from_arrays(
            np.stack(filled), times=check_time_step(time_step) * np.arange(longest), **options
        )
        if (lengths == longest).all():
            return filled_up
        observed = filled_up.observed
        if observed is not None:
            observed = observed[:] & (np.arange(longest)[:, None] < lengths[:, None, None])
        return replace(filled_up, lengths=lengths, observed=observed)

    @classmethod
    @checked
    def from_table(
        cls,
        table: Any,
        *,
        frame: str | None = None,
        time: str | None = None,
        id: str | None = None,
        positions: Sequence[str] = (),
        velocities: Sequence[str] = (),
        attributes: Sequence[str] = (),
        recording: str | None = None,
        split: str | None = None,
        time_step: PositiveFloat | None = None,
        frame_step: PositiveFloat | None = None,
        interpolate: Count = 0,
        meta: dict[Any, Any] | None = None,
        notify: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> Trajectories:
        """Build trajectories from a table with a row per observation: frame or time, id, x, y, ...

        Nodes may come and go. Columns are found by their usual names, or named here, see
        :class:`~spacetime_en.data.columns.Columns`.

        Args:
            table: a data frame (pandas, polars, pyarrow), a dictionary of columns, or the path of a
                text file; for all kinds of files, and for folders of them, use
                :func:`spacetime_en.data.readers.read`.
            frame, time, id, positions, velocities, attributes, recording, split: names of columns.
            time_step: time between frames; None: from the table, else frame numbers are times.
            frame_step: frame numbers, or time, between frames; None: the most common.
            interpolate: fill gaps of up to this many frames by linear interpolation; 0: leave them.
            meta: anything worth keeping, such as units.
            notify: called with how the data were understood, line by line (``meta["notes"]``).
        """
        from spacetime_en.data.columns import Columns
        from spacetime_en.data.observations import Source, gather
        from spacetime_en.data.tables import ArrayTable, ColumnTable, TextTable
        from spacetime_en.data.tracks import pack

        file = Path(table) if isinstance(table, str | os.PathLike) else None
        opened: ColumnTable = ArrayTable(table) if file is None else TextTable(file)
        wanted = Columns(
            frame,
            time,
            id,
            tuple(positions),
            tuple(velocities),
            tuple(attributes),
            recording,
            split,
        )
        packed = pack(
            gather([Source(opened, "table" if file is None else file.stem)], wanted),
            time_step=time_step,
            frame_step=frame_step,
            interpolate=interpolate,
            meta=meta,
        )
        for note in packed.meta["notes"]:
            notify(note)
        return packed

    # --- on disk --------------------------------------------------------------------------------

    @checked
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write to a new folder, as one shard."""
        refuse_foreign(Path(folder), "data set", "shard-*-of-*")
        if find_shards(Path(folder)):
            raise InputError(f"{folder}: exists already; choose another folder or delete it.")
        with ShardWriter(Path(folder), 0, 1, len(self)) as shard:
            shard.append(self)
        return Path(folder)

    @classmethod
    @checked
    def open(cls, folder: str | os.PathLike[str], *, verify: bool = False) -> Trajectories:
        """Open a data set lazily; `verify` compares its checksums, which reads everything."""
        folder = Path(folder)
        if folder.is_file():
            raise InputError(
                f"{folder}: is a file; make a data set of it first: spacetime data import "
                f"{folder.name} --out DIR."
            )
        if not folder.is_dir():
            raise InputError(f"{folder}: expected a data set's folder, found none.")
        shards = find_shards(folder)
        if not shards:
            raise InputError(f"{folder}: holds no data set (no shard-*-of-* inside).")
        metas = [read_meta(shard) for shard in shards]
        _check_complete(folder, metas)
        first = metas[0].spec
        for shard, meta in zip(shards, metas, strict=True):
            same = replace(meta.spec, lengths=first.lengths) == first
            if not same or meta.arrays != metas[0].arrays:
                raise InputError(f"{shard}: was made with other settings than its neighbours.")
            files = [shard / f"{name}.npy" for name in meta.arrays]
            if verify and checksum(files, meta.spec) != meta.checksum:
                raise InputError(
                    f"{shard}: its checksum does not fit; delete it and make it again."
                )

        def joined(name: str) -> LazyArray:
            parts = [mapped(shard / f"{name}.npy") for shard in shards]
            for part, meta, shard in zip(parts, metas, shards, strict=True):
                other = part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype
                if part.shape[:1] != (meta.num,) or other:
                    raise InputError(
                        f"{shard}: {name}.npy has another shape than it should, {part.shape}."
                    )
            return parts[0] if len(parts) == 1 else Concatenated(parts)

        arrays = {name: joined(name) for name in metas[0].arrays}
        changing = {name: arrays.pop(name) for name in first.frame_attributes}
        try:
            opened = cls(
                arrays.pop("x"),
                arrays.pop("v"),
                np.array(first.steps, dtype=np.int64),
                np.array(first.times, dtype=np.float64),
                {name: arrays[name] for name in arrays if name not in ("observed", "ids")},
                first.meta,
                None if first.box is None else as_floats("box", first.box),
                tuple(m.statistics for m in metas if m.statistics),
                tuple(m.checksum for m in metas),
                _joined_lengths(metas),
                arrays.get("observed"),
                arrays.get("ids"),
                changing,
            )
            if verify:
                for name, values in {"x": opened.x, "v": opened.v, **opened.attributes}.items():
                    check_single_precision(name, values)
                for name, values in opened.frame_attributes.items():
                    check_single_precision(name, values, axes=PER_FRAME)
                if opened.ids is not None and opened.observed is not None:
                    check_ids(opened.ids, opened.observed)
        except InputError as error:
            named = str(error).startswith(str(folder))
            raise InputError(str(error) if named else f"{folder}: {error}") from None
        return opened


def _check_complete(folder: Path, metas: Sequence[ShardMeta]) -> None:
    """Reject a set with missing shards, or with shards of another set."""
    count, there = metas[0].shards, {meta.shard for meta in metas}
    if any(meta.shards != count for meta in metas) or max(there) >= count:
        raise InputError(f"{folder}: holds shards of several data sets; keep those of one.")
    if len(there) < count:
        first = next(i for i in range(len(there) + 1) if i not in there)
        raise InputError(
            f"{folder}: is not complete: {count - len(there)} of {count} shards are missing, the "
            f"first is {first}; make it with the same command and --shard."
        )


def _joined_lengths(metas: Sequence[ShardMeta]) -> NDArray[np.int64] | None:
    if all(meta.spec.lengths is None for meta in metas):
        return None
    whole_runs = len(metas[0].spec.steps)
    parts = [m.spec.lengths or [whole_runs] * m.num for m in metas]
    return np.array([length for part in parts for length in part], dtype=np.int64)


def _where_not_nan(x: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a node has a position, (num, T, N): all of it, or none."""
    missing = np.isnan(x)
    observed: NDArray[np.bool_] = ~missing.any(-1)
    half = np.argwhere(~observed & ~missing.all(-1))
    if len(half):
        run, frame, node = half[0]
        raise InputError(
            f"x: of run {run}, frame {frame}, node {node} only some coordinates are NaN; let all "
            "be NaN where a node was not observed."
        )
    return observed
