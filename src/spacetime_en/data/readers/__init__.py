"""Trajectories from files: ``read(path)`` finds the reader by the kind of file.

| file | reader | needs |
|---|---|---|
| ``.npz`` with ``x`` (and ``v``, ``times``, attributes) | :mod:`arrays` | |
| a folder of ``loc_*.npy``, ``vel_*.npy``, ... (NRI, EGNN) | :mod:`arrays` | |
| ``.h5``, ``.hdf5``, ``.h5md`` in the H5MD layout | :mod:`h5md` | the extra ``h5md`` |
| ``.xyz``, ``.extxyz``, ``.traj``, ``.lammpstrj``, ... | :mod:`atoms` | the extra ``ase`` |
| ``.dcd``, ``.xtc``, ``.trr``, ... and a topology | :mod:`molecules` | extra ``mdanalysis`` |
| a folder or ``.tar.gz`` of ``.asf`` and ``.amc`` (CMU motion capture) | :mod:`mocap` | |
| a folder written by this package | ``Trajectories.open`` | |
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError

_BY_ENDING = {
    ".npz": ("arrays", "read_npz"),
    ".h5": ("h5md", "read_h5md"),
    ".hdf5": ("h5md", "read_h5md"),
    ".h5md": ("h5md", "read_h5md"),
    **dict.fromkeys((".tar", ".tgz", ".gz"), ("mocap", "read_mocap")),
    **dict.fromkeys((".dcd", ".xtc", ".trr", ".nc", ".ncdf"), ("molecules", "read_mdanalysis")),
    **dict.fromkeys(
        (".xyz", ".extxyz", ".traj", ".lammpstrj", ".dump", ".vasp", ".xdatcar"),
        ("atoms", "read_ase"),
    ),
}


def read(path: str | os.PathLike[str], **options: Any) -> Trajectories:
    """Read trajectories from a file or folder.

    Args:
        path: what to read.
        options: of the reader, such as ``topology`` and ``select`` for MDAnalysis.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    if path.is_dir():
        if any(path.glob("shard-*-of-*")):
            return Trajectories.open(path)
        motion = any(path.rglob("*.[aA][mM][cC]"))
        reader = _load("mocap", "read_mocap") if motion else _load("arrays", "read_npy_folder")
    elif path.suffix.lower() in _BY_ENDING:
        reader = _load(*_BY_ENDING[path.suffix.lower()])
    else:
        known = ", ".join(sorted(_BY_ENDING))
        raise InputError(f"{path}: no reader for {path.suffix or 'this file'}; known are {known}.")
    unknown = set(options) - set(inspect.signature(reader).parameters)
    if unknown:
        raise InputError(f"{min(unknown)}: not an option for reading {path.name}.")
    try:
        return reader(path, **options)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be understood ({error}).") from None


def _load(module: str, name: str) -> Callable[..., Trajectories]:
    reader: Callable[..., Trajectories] = getattr(import_module(f"{__name__}.{module}"), name)
    return reader
