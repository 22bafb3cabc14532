"""Write trajectories to files: ``open_writer(path, like)`` infers the format from the ending.

| name | runs | attributes | nodes | needs |
|---|---|---|---|---|
| a folder: no ending | any number | any | may come and go | |
| ``.npz`` | any number, of one length | any | may come and go | |
| ``.h5``, ``.hdf5``, ``.h5md`` (H5MD) | one | mass, charge, species | may be missing | ``h5md`` |
| ``.xyz``, ``.extxyz``, ``.traj`` | one | mass, atomic_number or species | always there | ``ase`` |

:func:`open_forecasts` writes tables of forecasts: ``.csv``, ``.tsv``, ``.txt`` and ``.parquet``.

Attributes and dimensions that :func:`spacetime_en.data.readers.read` would not give back are
rejected. Everything else is read back bit for bit, except:

- Only folders keep ``meta``; H5MD keeps the units in it. Folders and ``.npz`` keep the steps.
- ASE's formats: species come back as ``atomic_number`` (X, which is 0, if there are none), masses
  as those of the elements if there are none. Times are written, but reading them takes the option
  ``time_step``. In xyz files ASE keeps eight decimals. Numbers are not converted to ASE's units.
- Velocities that are only differences of frames are not written: the readers recompute them, and
  record that they were not measured.
"""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.files import create_atomically, refuse_existing
from spacetime_en.data.npy import PER_FRAME_PREFIX
from spacetime_en.data.shards import ShardWriter, shard_name, whole_folder
from spacetime_en.data.tables import TABLE_ENDINGS
from spacetime_en.data.trajectories import Trajectories

Append = Callable[[Trajectories], None]
_SEVERAL = "a folder (a name without ending) or .npz"


class Writer:
    """Takes trajectories part by part, in whole runs and in order."""

    def __init__(self, append: Append) -> None:
        self._append = append
        self.written = 0

    def append(self, part: Trajectories) -> None:
        """Write further runs, with the same nodes, times, attributes and box as those before."""
        self._append(part)
        self.written += len(part)


@contextmanager
def open_writer(path: str | os.PathLike[str], like: Trajectories) -> Iterator[Writer]:
    """Write trajectories piece by piece; the file appears under its name only once complete.

    Memory: no more than the part that is being appended.

    Args:
        path: what to write; its ending selects the format, no ending is a folder.
        like: trajectories with as many runs, and the same dimensions, attributes and units, as
            will be written (times may differ). What the format cannot hold is rejected at once,
            not after hours of work.
    Yields: the writer; call its ``append`` until all runs are written.
    """
    target = Path(path)
    refuse_existing(target)
    if target.suffix.lower() not in _BY_ENDING:
        endings = ", ".join(sorted(filter(None, _BY_ENDING)))
        raise InputError(
            f"{target}: no writer for {target.suffix}; known are {endings}, no ending for a "
            f"folder, and of forecasts tables: {', '.join(TABLE_ENDINGS)}."
        )
    with _BY_ENDING[target.suffix.lower()](target, like) as append:
        writer = Writer(append)
        yield writer
        if writer.written != len(like):
            raise InputError(f"{target}: expected {len(like)} runs, found {writer.written}.")


@contextmanager
def _folder(target: Path, like: Trajectories) -> Iterator[Append]:
    with whole_folder(target) as folder, ShardWriter(folder, 0, 1, len(like)) as shard:
        yield shard.append


@contextmanager
def _npz(target: Path, like: Trajectories) -> Iterator[Append]:
    """A zip of ``.npy`` files, which are kept next to it until they are complete."""
    for name in ("times", "steps", "box"):
        if name in like.attributes:
            raise InputError(f"{target}: {name!r} cannot be an attribute in .npz; use a folder.")
    for name in like.attributes:
        if name.startswith(PER_FRAME_PREFIX):
            raise InputError(f"{target}: {name!r} cannot be an attribute in .npz; use a folder.")
    if like.lengths is not None:
        raise InputError(f"{target}: the runs have different lengths; use a folder.")
    with create_atomically(target) as file:
        with ShardWriter(file.parent, 0, 1, len(like)) as shard:
            yield shard.append
        written = Trajectories.open(file.parent)
        large = {name: name for name in ("x", *written.attributes)}
        large |= {"v": "v"} if written.measured_velocities else {}
        large |= {"observed": "observed"} if written.observed is not None else {}
        large |= {"ids": "ids"} if written.ids is not None else {}
        large |= {f"{PER_FRAME_PREFIX}{name}": name for name in written.frame_attributes}
        small = {"times": written.times, "steps": written.steps, "box": written.box}
        with zipfile.ZipFile(file, "w") as archive:
            for member, name in large.items():
                archive.write(file.parent / shard_name(0, 1) / f"{name}.npy", f"{member}.npy")
            for name, array in small.items():
                if array is not None:
                    with archive.open(f"{name}.npy", "w") as entry:
                        np.lib.format.write_array(entry, array)


@contextmanager
def _h5md(target: Path, like: Trajectories) -> Iterator[Append]:
    h5py = require("h5py", "h5md")
    _check_holds(target, like, ("mass", "charge", "species"))
    _check_stays(target, like)
    with create_atomically(target) as file, h5py.File(file, "w") as h5:
        yield lambda part: _write_h5md(h5, part)


def _write_h5md(file: Any, part: Trajectories) -> None:
    """Write the one run of `part` according to the H5MD specification 1.1."""
    from importlib.metadata import version

    file.create_group("h5md").attrs["version"] = [1, 1]
    for who in ("author", "creator"):
        file.create_group(f"h5md/{who}").attrs["name"] = "spacetime-en"
    file["h5md/creator"].attrs["version"] = version("spacetime-en")
    group, box = file.create_group("particles/all"), file.create_group("particles/all/box")
    T, _, n = part.x.shape[1:]
    length, time = (part.meta.get(f"{what}_unit") for what in ("length", "time"))
    changing = {"position": (part.x[0], length)}
    if part.measured_velocities:
        changing["velocity"] = (part.v[0], f"{length} {time}-1" if length and time else None)
    if part.observed is not None:
        changing["observed"] = (part.observed[0], None)
    box.attrs["dimension"] = n
    box.attrs["boundary"] = ["none" if part.box is None else "periodic"] * n
    if part.box is not None:
        edges = np.diagonal(part.box)
        edges = edges if (np.diag(edges) == part.box).all() else part.box
        # The same in every frame, but MDAnalysis looks for it there.
        changing["box/edges"] = (np.broadcast_to(edges, (T, *edges.shape)), length)
    for name, (values, unit) in changing.items():
        element = group.create_group(name)
        element["value"] = np.asarray(values, dtype=np.uint8 if name == "observed" else np.float64)
        _set_unit(element["value"], unit)
        if name == "position":
            element["step"], element["time"] = part.steps, part.times
            _set_unit(element["time"], time)
        else:  # hard links to the same data sets
            element["step"], element["time"] = group["position/step"], group["position/time"]
    for name, attribute in part.attributes.items():
        group[name] = np.asarray(attribute[0], dtype=np.float64)


def _set_unit(data: Any, unit: Any) -> None:
    if unit is not None:
        data.attrs["unit"] = str(unit)


@contextmanager
def _ase(target: Path, like: Trajectories) -> Iterator[Append]:
    ase = require("ase", "ase")
    number = "atomic_number" if "atomic_number" in like.attributes else "species"
    _check_holds(target, like, ("mass", number))
    _check_stays(target, like, gaps=False)
    _check_atoms(target, like, number, elements=len(require("ase.data", "ase").chemical_symbols))
    with create_atomically(target) as file, _atoms_file(file) as write:

        def append(part: Trajectories) -> None:
            numbers, masses = part.attributes.get(number), part.attributes.get("mass")
            for x, v, time in zip(part.x[0], part.v[0], part.times.tolist(), strict=True):
                atoms = ase.Atoms(
                    numbers=np.zeros(len(x), int) if numbers is None else numbers[0].astype(int),
                    positions=x,
                    masses=None if masses is None else masses[0],
                    cell=part.box,
                    pbc=part.box is not None,
                    info={"time": time},
                )
                if part.measured_velocities:
                    atoms.set_velocities(v)
                write(atoms)

        yield append


@contextmanager
def _atoms_file(file: Path) -> Iterator[Callable[[Any], Any]]:
    """A function that appends one frame."""
    if file.suffix.lower() == ".traj":
        with require("ase.io.trajectory", "ase").TrajectoryWriter(file) as binary:
            yield binary.write
    else:
        write_xyz = require("ase.io.extxyz", "ase").write_xyz
        with file.open("w", encoding="utf-8") as text:
            yield lambda atoms: write_xyz(text, [atoms])


# --- tables of forecasts --------------------------------------------------------------------------


class ForecastTable:
    """Takes forecasts batch by batch, see :func:`open_forecasts`."""

    def __init__(self, like: Trajectories, write: Callable[[dict[str, Any]], None]) -> None:
        self._like, self._write = like, write
        R, T, _, n = like.x.shape
        meta = like.meta
        self._recordings = _entries(meta, "recordings", R)
        self._names = _entries(meta, "node_names")
        self._first = np.asarray(_entries(meta, "first_frames", R) or np.zeros(R, dtype=np.int64))
        columns = meta.get("columns")
        named: dict[str, Any] = columns if isinstance(columns, dict) else {}
        self._timed = "time" in named or self._first.dtype.kind == "f"
        axes = "xyz"[:n] if n <= 3 else [f"x{d}" for d in range(1, n + 1)]
        frame = str(named.get("time" if self._timed else "frame") or "frame")
        self._heads = [frame, str(named.get("id") or "id")]
        self._heads += _entries(named, "positions", n) or list(axes)
        self._heads += _entries(named, "velocities", n) or [f"v{axis}" for axis in axes]
        ours = {"recording", f"last_{frame}", "spread"}
        if len(ours.union(self._heads)) < len(ours) + len(self._heads):
            plain = ["frame", "id", *axes, *(f"v{axis}" for axis in axes)]
            self._heads = plain  # the user's names would not distinguish the columns
        span = like.steps[-1] - like.steps[0]
        self._per_step = float((like.times[-1] - like.times[0]) / span) if T > 1 else 1.0

    def append(
        self,
        runs: NDArray[np.int64],
        last: NDArray[np.int64],
        horizon: NDArray[np.float64],
        x: NDArray[np.float64],
        v: NDArray[np.float64],
        ids: NDArray[np.int64] | None = None,
        mask: NDArray[np.bool_] | None = None,
        spread: NDArray[np.float64] | None = None,
    ) -> None:
        """Write the forecasts of a batch of windows.

        Args:
            runs: the recording of each window, (b,).
            last: index of its last frame, (b,).
            horizon: times from the last frame to the targets, (b, T).
            x, v: forecasts, (b, T, N, n).
            ids: number of each node, (b, N), as in ``Trajectories.ids``; None: 0, ..., N - 1.
            mask: which forecasts to write, (b, T, N); None: all.
            spread: as in ``Forecast``, (b, T, N); None: the model gives none, for any batch.
        """
        b, T, N, n = x.shape
        seen = np.ones((b, T, N), dtype=bool) if mask is None else mask
        window, target, node = np.nonzero(seen)
        ids = np.broadcast_to(np.arange(N), (b, N)) if ids is None else ids
        start = self._first[runs]
        if self._timed:
            newest = start + self._like.times[last]
            frames = newest[:, None] + horizon
        else:
            newest = start + self._like.steps[last]
            frames = newest[:, None] + horizon / self._per_step
            whole = np.rint(frames)
            frames = whole.astype(np.int64) if np.allclose(frames, whole, atol=1e-6) else frames
        numbers = ids[window, node]
        frame, identity, *rest = self._heads
        columns: dict[str, Any] = {}
        if len(self._like) > 1:
            names = self._recordings or [str(run) for run in range(len(self._like))]
            columns["recording"] = [names[run] for run in runs[window].tolist()]
        columns[f"last_{frame}"] = newest[window]
        columns[frame] = frames[window, target]
        named = self._names and numbers.max(initial=0) < len(self._names)
        columns[identity] = [self._names[i] for i in numbers.tolist()] if named else numbers
        for d, head in enumerate(rest):
            columns[head] = (x if d < n else v)[window, target, node, d % n]
        if spread is not None:
            columns["spread"] = spread[window, target, node]
        self._write(columns)


def _entries(meta: dict[str, Any], key: str, count: int | None = None) -> list[Any]:
    """A list in `meta`, or an empty one if it is missing or does not fit."""
    found = meta.get(key)
    fits = isinstance(found, list) and (count is None or len(found) == count)
    return list(found) if fits and found is not None else []


@contextmanager
def open_forecasts(path: str | os.PathLike[str], like: Trajectories) -> Iterator[ForecastTable]:
    """Write forecasts as a table of the same kind as the data, batch by batch.

    Its columns are the recording (if there are several), the last input frame, the frame that is
    forecast, the id, positions, velocities, and the spread if the model gives one; frames, ids and
    names are those of the user. The file appears under its name only once complete.

    Args:
        path: ``.csv``, ``.tsv`` or ``.txt`` (with tabs), or ``.parquet`` (the extra ``parquet``).
        like: the data that are forecast.
    """
    target = Path(path)
    if target.suffix.lower() not in TABLE_ENDINGS:
        raise InputError(f"{target}: no table; expected a name with {', '.join(TABLE_ENDINGS)}.")
    rows = _parquet_rows if target.suffix.lower() == ".parquet" else _text_rows
    with create_atomically(target) as file, rows(file) as write:
        yield ForecastTable(like, write)


@contextmanager
def _text_rows(file: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    with file.open("w", encoding="utf-8", newline="") as text:
        sign = "," if file.suffix.lower() == ".csv" else "\t"
        writer, headed = csv.writer(text, delimiter=sign, lineterminator="\n"), False

        def write(columns: dict[str, Any]) -> None:
            nonlocal headed
            if not headed:
                writer.writerow(columns)
            headed = True
            lists = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns.values()]
            writer.writerows(zip(*lists, strict=True))

        yield write


@contextmanager
def _parquet_rows(file: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    pyarrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    with ExitStack() as stack:
        opened: Any = None

        def write(columns: dict[str, Any]) -> None:
            nonlocal opened
            table = pyarrow.table(columns)
            if opened is None:
                opened = stack.enter_context(parquet.ParquetWriter(file, table.schema))
            opened.write_table(table.cast(opened.schema))

        yield write


_BY_ENDING: dict[str, Callable[[Path, Trajectories], AbstractContextManager[Append]]] = {
    "": _folder,
    ".npz": _npz,
    **dict.fromkeys((".h5", ".hdf5", ".h5md"), _h5md),
    **dict.fromkeys((".xyz", ".extxyz", ".traj"), _ase),
}


# --- what a format cannot hold ------------------------------------------------------------------


def _check_holds(target: Path, like: Trajectories, supported: tuple[str, ...]) -> None:
    """Reject several runs, and attributes that the format's reader does not know."""
    if len(like) != 1:
        use = _SEVERAL if like.lengths is None else "a folder (a name without ending)"
        raise InputError(
            f"{target}: a {target.suffix} file holds one run, found {len(like)}; use {use}."
        )
    for name, values in like.attributes.items():
        if name not in supported or len(values.shape) != 2:
            raise InputError(
                f"{target}: of attributes, a {target.suffix} file holds {', '.join(supported)} of "
                f"nodes, found {name!r}; use {_SEVERAL}."
            )


def _check_stays(target: Path, like: Trajectories, gaps: bool = True) -> None:
    """Reject nodes that come and go, or (with `gaps`) that are missing in some frames."""
    for what, found in (
        ("nodes that come and go", like.ids is not None),
        ("attributes that change", bool(like.frame_attributes)),
        ("nodes that are missing in some frames", like.observed is not None and not gaps),
    ):
        if found:
            raise InputError(f"{target}: a {target.suffix} file holds no {what}; use {_SEVERAL}.")


def _check_atoms(target: Path, like: Trajectories, number: str, elements: int) -> None:
    """Reject what cannot be atoms, and lengths of which an xyz file would keep few digits."""
    kind = f"{target}: a {target.suffix} file"
    if like.x.shape[-1] != 3:
        n = like.x.shape[-1]
        raise InputError(f"{kind} holds three dimensions, found {n}; use {_SEVERAL}, or .h5.")
    if number in like.attributes:
        numbers = np.asarray(like.attributes[number][0])
        bad = ~np.isin(numbers, np.arange(elements))
        if bad.any():
            raise InputError(
                f"{kind} needs atomic numbers from 0 to {elements - 1} as {number!r}, found "
                f"{numbers[bad][0]:g}; use {_SEVERAL}."
            )
    if "mass" in like.attributes and not (np.asarray(like.attributes["mass"]) > 0).all():
        raise InputError(f"{kind} holds momenta, which need positive masses; use {_SEVERAL}.")
    written = {"x": like.x, "v": like.v} if like.measured_velocities else {"x": like.x}
    for name, values in written.items():
        largest = float(np.abs(values[0, -1]).max())
        if target.suffix.lower() != ".traj" and 0 < largest < 1e-3:
            raise InputError(
                f"{kind} keeps eight decimals, and {name} is {largest:.2g} at most; use .traj, or "
                "other units."
            )
