"""NumPy files: a single ``.npz``, or a folder of ``.npy`` in the NRI and EGNN layout."""

import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import check_name, open_regular, reason, shortened
from spacetime_en.data.limits import check_claim, check_memory
from spacetime_en.data.npy import PER_FRAME_PREFIX, read_header, read_rest
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import MOST_ATTRIBUTES, check_time_step


def read_npz(path: Path) -> Trajectories:
    """Read an archive with ``x`` (num, T, N, n) or (T, N, n) and, optionally, ``v``, ``times``,
    ``steps``, ``box``; every other array of a matching shape is an attribute.

    ``observed`` (num, T, N) says where a node was observed (without it: where ``x`` is not NaN);
    ``ids`` (num, T, N) says which node has a slot. Arrays whose names begin with ``per_frame_`` are
    attributes that change from frame to frame.

    Molecules in the MD17 format have ``R`` (T, N, n) and ``z``, the atomic numbers; their energies
    and forces are ignored.
    """
    arrays = read_archive(path)
    if "x" not in arrays and {"R", "z"} <= set(arrays):
        arrays = {"x": arrays["R"], "atomic_number": arrays["z"]}
    if "x" not in arrays:
        names = shortened(sorted(arrays))
        raise InputError(f"{path}: expected an array 'x' of positions, found {names}.")
    optional = ("v", "times", "steps", "box", "observed", "ids")
    named: dict[str, Any] = {name: arrays.pop(name, None) for name in ("x", *optional)}
    changing = {
        name.removeprefix(PER_FRAME_PREFIX): arrays.pop(name)
        for name in list(arrays)
        if name.startswith(PER_FRAME_PREFIX)
    }
    return Trajectories.from_arrays(
        **named, attributes=arrays, frame_attributes=changing, meta={"source": path.name}
    )


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Read the numeric arrays in an ``.npz`` file, by name, if they all fit in memory."""
    arrays, numbers = {}, 0
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_ATTRIBUTES + 7:
                raise InputError(
                    f"{path}: expected at most {MOST_ATTRIBUTES} attributes, found {len(members)}."
                )
            for member in members:
                where = f"{path}: {shortened(member.filename)}"
                name = check_name(member.filename.removesuffix(".npy"), str(path))
                if name in arrays:
                    raise InputError(f"{where} stands twice.")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise InputError(f"{where} is compressed in a way that NumPy does not use.")
                check_claim(member.file_size, member.compress_size, where)
                with archive.open(member) as stream:
                    header = read_header(stream, member.file_size, where)
                    numbers += math.prod(header.shape)
                    check_memory(numbers, path)
                    arrays[name] = read_rest(stream, header)
    except InputError:
        raise
    except Exception as error:  # (zipfile and zlib raise many kinds)
        raise InputError(f"{path}: is cut off, damaged or no .npz ({reason(error)}).") from error
    return arrays


def read_npy_folder(path: Path, time_step: float | None = None) -> Trajectories:
    """Read ``loc_*.npy`` and ``vel_*.npy``, each (num, T, n, N), with ``charges_*`` or ``edges_*``.

    Splits are joined in the order train, valid, test. The files do not give the time between
    frames: pass it as `time_step`; by default it is the one that best fits the velocities.
    """
    order = {"train": 0, "valid": 1, "test": 2}
    locations = sorted(
        path.glob("loc_*.npy"),
        key=lambda p: (next((k for s, k in order.items() if s in p.name), 3), p.name),
    )
    if not locations:
        raise InputError(f"{path}: holds no data set of this package, no tables and no loc_*.npy.")

    def joined(kind: str) -> Any:
        files = [p.with_name(p.name.replace("loc_", f"{kind}_", 1)) for p in locations]
        there = [f for f in files if os.path.lexists(f)]
        if not there:
            return None
        if len(there) < len(files):
            missing = next(f for f in files if f not in there)
            raise InputError(f"{missing}: is missing, but {there[0].name} is there.")
        parts = [_read_npy(f) for f in files]
        if parts[0].ndim == 0:
            raise InputError(f"{files[0]}: expected an array (num, ...), found ().")
        if len({part.shape[1:] for part in parts}) > 1:
            raise InputError(f"{path}: the arrays {kind}_*.npy do not fit each other.")
        return np.concatenate(parts)

    x, v = joined("loc"), joined("vel")
    for kind, array in (("loc", x), ("vel", v)):
        if array is not None and array.ndim != 4:
            raise InputError(f"{path}: expected {kind}_*.npy (num, T, n, N), found {array.shape}.")
    x = x.swapaxes(2, 3)
    attributes = {}
    if (charges := joined("charges")) is not None:
        attributes["charge"] = charges.reshape(len(charges), -1)
    elif (edges := joined("edges")) is not None:
        attributes["spring"] = edges
    return Trajectories.from_arrays(
        x,
        None if v is None else v.swapaxes(2, 3),
        times=None if time_step is None else check_time_step(time_step) * np.arange(x.shape[1]),
        attributes=attributes,
        meta={"source": path.name},
    )


def _read_npy(path: Path) -> NDArray[Any]:
    """Read one array of the folder that the user named."""
    with open_regular(path, inside=True) as file:
        header = read_header(file, path.stat().st_size, path)
        check_memory(math.prod(header.shape), path)
        return read_rest(file, header)
