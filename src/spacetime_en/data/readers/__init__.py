"""Read trajectories from files: ``read(path)`` selects the reader by the kind of file.

| file | reader | needs |
|---|---|---|
| ``.npz`` with ``x`` (and ``v``, ``times``, attributes) | :mod:`arrays` | |
| a folder of ``loc_*.npy``, ``vel_*.npy``, ... (NRI, EGNN) | :mod:`arrays` | |
| ``.h5``, ``.hdf5``, ``.h5md`` in the H5MD layout | :mod:`h5md` | the extra ``h5md`` |
| ``.xyz``, ``.extxyz``, ``.traj``, ``.lammpstrj``, ... | :mod:`atoms` | the extra ``ase`` |
| ``.dcd``, ``.xtc``, ``.trr``, ... and a topology | :mod:`molecules` | extra ``mdanalysis`` |
| a folder or ``.tar.gz`` of ``.asf`` and ``.amc`` (CMU motion capture) | :mod:`mocap` | |
| ``.csv``, ``.tsv``, ``.txt`` (and ``.gz`` of them): tracks | :mod:`tables` | |
| ``.parquet``: tracks | :mod:`tables` | the extra ``parquet`` |
| a folder of such tables, each a recording | :mod:`tables` | |
| a folder written by this package | ``Trajectories.open`` | |
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import checked, reason, shortened
from spacetime_en.data.tables import TABLE_ENDINGS, is_table
from spacetime_en.data.trajectories import Trajectories

_BY_ENDING = {
    ".npz": ("arrays", "read_npz"),
    **dict.fromkeys((".h5", ".hdf5", ".h5md"), ("h5md", "read_h5md")),
    **dict.fromkeys((".tar", ".tgz", ".gz"), ("mocap", "read_mocap")),
    **dict.fromkeys(TABLE_ENDINGS, ("tables", "read_tables")),
    **dict.fromkeys((".dcd", ".xtc", ".trr", ".nc", ".ncdf"), ("molecules", "read_mdanalysis")),
    **dict.fromkeys(
        (".xyz", ".extxyz", ".traj", ".lammpstrj", ".dump", ".xdatcar"),
        ("atoms", "read_ase"),
    ),
}


@checked
def read(path: str | os.PathLike[str], **options: Any) -> Trajectories:
    """Read trajectories from a file or folder.

    Args:
        path: what to read.
        options: of the reader, such as ``topology`` and ``select`` for MDAnalysis; None is ignored.
    """
    path, options = Path(path), {k: v for k, v in options.items() if v is not None}
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    try:
        reader = _reader(path)
        unknown = set(options) - set(inspect.signature(reader).parameters)
        if unknown:
            raise InputError(f"{min(unknown)}: not an option for reading {path.name}.")
        return reader(path, **options)
    except InputError as error:
        named = str(path) in str(error) or str(error).partition(":")[0] in options
        raise error if named else InputError(f"{path}: {error}") from None
    except (ImportError, OSError):
        raise
    except Exception as error:  # a file may be damaged in unforeseen ways
        raise InputError(f"{path}: cannot be understood ({reason(error)}).") from error


def _reader(path: Path) -> Callable[..., Trajectories]:
    """The reader for a file or folder."""
    if path.is_dir():
        if any(path.glob("shard-*-of-*")):
            return lambda path: Trajectories.open(path, verify=True)
        if any(path.rglob("*.[aA][mM][cC]")):
            return _load("mocap", "read_mocap")
        if not any(path.glob("loc_*.npy")) and any(map(is_table, path.rglob("*"))):
            return _load("tables", "read_tables")
        return _load("arrays", "read_npy_folder")
    if is_table(path):  # also tracks.csv.gz, whereas other .gz are archives
        return _load("tables", "read_tables")
    if path.suffix.lower() not in _BY_ENDING:
        endings = ", ".join(sorted(_BY_ENDING))
        ending = shortened(path.suffix) if path.suffix else "this file"
        raise InputError(f"{path}: no reader for {ending}; known are {endings}.")
    return _load(*_BY_ENDING[path.suffix.lower()])


def _load(module: str, name: str) -> Callable[..., Trajectories]:
    reader: Callable[..., Trajectories] = getattr(import_module(f"{__name__}.{module}"), name)
    return reader
