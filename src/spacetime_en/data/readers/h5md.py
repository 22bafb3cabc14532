"""HDF5 files in the H5MD layout (the extra ``h5md``)."""

from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError, require


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
            times = _times(position)
            velocity = particles.get("velocity")
            v = None if velocity is None else _value(velocity)[:]
            attributes = {
                name: _constant(path, name, particles[name])
                for name in ("mass", "charge", "species")
                if name in particles
            }
            box = None
            if "box" in particles and "edges" in particles["box"]:
                boundary = [_text(b) for b in particles["box"].attrs.get("boundary", [])]
                if "none" not in boundary:
                    box = _constant(path, "box/edges", particles["box/edges"])
            if "id" in particles:  # frames may list the particles in another order
                order = np.argsort(np.broadcast_to(_value(particles["id"])[:], x.shape[:2]), axis=1)
                x = np.take_along_axis(x, order[..., None], axis=1)
                v = None if v is None else np.take_along_axis(v, order[..., None], axis=1)
            units = {
                "length_unit": _text(position["value"].attrs.get("unit")),
                "time_unit": _text(
                    position["time"].attrs.get("unit") if "time" in position else None
                ),
            }
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: is truncated or not in the H5MD layout ({error}).") from None
    meta = {"source": path.name, **units}
    return Trajectories.from_arrays(x, v, times=times, attributes=attributes, box=box, meta=meta)


def _times(position: Any) -> Any:
    """The times of the frames: written out, or one number for the step between them."""
    if "time" not in position:
        return None
    times = np.asarray(position["time"])
    return times * np.arange(len(position["value"])) if times.ndim == 0 else times


def _value(element: Any) -> Any:
    """The data of an element, which is a data set or a group with ``value``."""
    return element if hasattr(element, "dtype") else element["value"]


def _constant(path: Path, name: str, element: Any) -> Any:
    """An element that must not change in time, as an array without a time axis."""
    if hasattr(element, "dtype"):
        return element[:]
    values = element["value"][:]
    if not (values == values[:1]).all():
        raise InputError(f"{path}: {name} changes from frame to frame; it must stay the same.")
    return values[0]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)
