"""HDF5 files in the H5MD layout (the extra ``h5md``)."""

from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en.data.readers import require
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError


def read_h5md(path: Path, group: str | None = None) -> Trajectories:
    """One particle group: position, velocity, mass, charge, species, and its box.

    Args:
        path: the file.
        group: below ``/particles``; None: the only one.
    """
    h5py = require("h5py", "h5md")
    try:
        with h5py.File(path, "r") as file:
            if "particles" not in file:
                raise InputError(f"{path}: expected the H5MD group /particles, found {list(file)}.")
            groups = list(file["particles"])
            if group is None and len(groups) != 1:
                raise InputError(f"{path}: has the groups {groups}; choose one with group=.")
            particles = file["particles"][group or groups[0]]
            position = particles["position"]
            x = position["value"][:]
            fields: dict[str, Any] = {"times": _real(position, "time"), "steps": None}
            v = particles["velocity/value"][:] if "velocity/value" in particles else None
            attributes = {}
            for name in ("mass", "charge", "species"):
                if name in particles:
                    value = particles[name]
                    # Constant ones are plain data sets; of others the first frame is taken.
                    attributes[name] = value[:] if hasattr(value, "dtype") else value["value"][0]
            edges = particles.get("box/edges")
            if edges is not None:
                fields["box"] = edges[:] if hasattr(edges, "dtype") else edges["value"][0]
            unit = position["value"].attrs.get("unit")
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: is truncated or not in the H5MD layout ({error}).") from None
    meta = {"source": path.name, "length_unit": None if unit is None else str(unit)}
    return Trajectories.from_arrays(x, v, attributes=attributes, meta=meta, **fields)


def _real(position: Any, name: str) -> Any:
    """The times of the frames: written out, or one number for the step between them."""
    if name not in position:
        return None
    times = np.asarray(position[name])
    return times * np.arange(len(position["value"])) if times.ndim == 0 else times
