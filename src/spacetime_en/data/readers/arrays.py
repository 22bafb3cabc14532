"""NumPy files: one ``.npz``, or a folder of ``.npy`` as the NRI and EGNN generators write them."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError


def read_npz(path: Path) -> Trajectories:
    """An archive with ``x`` (num, T, N, n) or (T, N, n), and, if there, ``v``, ``times``,
    ``steps``, ``box``; every other array of a fitting shape is an attribute."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is truncated, no .npz, or holds pickles ({error}).") from None
    if "x" not in arrays:
        raise InputError(f"{path}: expected an array 'x' of positions, found {sorted(arrays)}.")
    named = {name: arrays.pop(name, None) for name in ("v", "times", "steps", "box")}
    x = arrays.pop("x")
    return Trajectories.from_arrays(x, **named, attributes=arrays, meta={"source": path.name})


def read_npy_folder(path: Path, time_step: float | None = None) -> Trajectories:
    """``loc_*.npy`` and ``vel_*.npy``, each (num, T, n, N), with ``charges_*`` or ``edges_*``.

    Splits are joined in the order train, valid, test. The files do not tell the time between
    frames: give it as `time_step`, or the one that fits positions and velocities best is taken.
    """
    order = {"train": 0, "valid": 1, "test": 2}
    found = sorted(
        path.glob("loc_*.npy"),
        key=lambda p: (next((k for s, k in order.items() if s in p.name), 3), p.name),
    )
    if not found:
        raise InputError(f"{path}: holds neither a data set of this package nor loc_*.npy files.")

    def joined(kind: str) -> Any:
        files = [p.with_name(p.name.replace("loc_", f"{kind}_", 1)) for p in found]
        if not all(f.exists() for f in files):
            return None
        try:
            return np.concatenate([np.load(f, allow_pickle=False) for f in files])
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path}: {kind}_*.npy cannot be read ({error}).") from None

    x, v = joined("loc").swapaxes(2, 3), joined("vel")
    attributes = {}
    if (charges := joined("charges")) is not None:
        attributes["charge"] = charges.reshape(len(x), -1)
    elif (edges := joined("edges")) is not None:
        attributes["spring"] = edges
    return Trajectories.from_arrays(
        x,
        None if v is None else v.swapaxes(2, 3),
        times=None if time_step is None else time_step * np.arange(x.shape[1]),
        attributes=attributes,
        meta={"source": path.name},
    )
