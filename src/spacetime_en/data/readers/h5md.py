"""HDF5 files in the H5MD layout (the extra ``h5md``).

An HDF5 file may point into other files, and claim more numbers than it holds; what is read here
lies in the file itself.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError, require
from spacetime_en.limits import check_claim, check_memory, total
from spacetime_en.schema import open_regular, reason, shortened

_LONGEST_TEXT = 100  # of a unit


def read_h5md(path: Path, group: str | None = None) -> Trajectories:
    """One particle group: position, velocity, mass, charge, species, and its box.

    Args:
        path: the file.
        group: below ``/particles``; None: the only one.
    """
    h5py = require("h5py", "h5md")
    open_regular(path).close()
    try:
        with h5py.File(path, "r") as opened:
            return _read(_Group(opened, path), group)
    except InputError:
        raise
    except Exception as error:  # HDF5 has its own way with each kind of damage
        raise InputError(
            f"{path}: is cut off, damaged or not in the H5MD layout ({reason(error)})."
        ) from error


class _Group:
    """A group of the file, whose members are in the file and not elsewhere.

    Args:
        group: as h5py has it.
        path: of the file.
    """

    def __init__(self, group: Any, path: Path) -> None:
        self.group, self.path = group, path
        self.names = list(group)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def _member(self, name: str) -> Any:
        h5py = require("h5py", "h5md")
        where = f"{self.path}: {shortened(f'{self.group.name}/{name}'.lstrip('/'))}"
        if name not in self:
            raise InputError(f"{where} is missing; is the file in the H5MD layout?")
        if not isinstance(self.group.get(name, getlink=True), h5py.HardLink):
            raise InputError(f"{where} is a link to something else, and links are not followed.")
        return self.group[name]

    def inside(self, name: str) -> "_Group":
        """A group of this group."""
        member = self._member(name)
        if not hasattr(member, "keys"):
            raise InputError(f"{self.path}: expected a group {shortened(member.name)}.")
        return _Group(member, self.path)

    def is_group(self, name: str) -> bool:
        """Whether the member of that name is one."""
        return hasattr(self._member(name), "keys")

    def numbers(self, name: str) -> NDArray[Any]:
        """A data set of numbers that is there as a whole."""
        member = self._member(name)
        where = f"{self.path}: {shortened(member.name)}"
        if not hasattr(member, "chunks") or member.shape is None:
            raise InputError(f"{where}: expected an array of numbers.")
        if member.dtype.kind not in "biufc":
            raise InputError(f"{where}: expected numbers, found values of type {member.dtype}.")
        if member.external is not None or member.is_virtual:
            raise InputError(f"{where} lies in other files, which are not read.")
        numbers = total(member.shape)
        chunk = total(member.chunks or ()) * member.dtype.itemsize
        stored = min(member.id.get_storage_size(), self.path.stat().st_size)
        check_claim(max(numbers * member.dtype.itemsize, chunk), stored, where)
        check_memory(numbers, where)
        return np.asarray(member[()])

    def constant(self, name: str) -> NDArray[Any]:
        """An element that must not change in time, without a time axis."""
        if not self.is_group(name):
            return self.numbers(name)
        values = self.inside(name).numbers("value")
        if values.ndim == 0 or len(values) == 0 or not (values == values[:1]).all():
            raise InputError(
                f"{self.path}: {name} changes from frame to frame; it must stay the same."
            )
        return np.asarray(values[0])

    def varying(self, name: str) -> NDArray[Any]:
        """An element in time: a data set, or a group with ``value``."""
        return self.inside(name).numbers("value") if self.is_group(name) else self.numbers(name)

    def words(self, name: str, of: str | None = None) -> list[str]:
        """The words of a short attribute of this group, or of one of its members."""
        attributes = (self.group if of is None else self._member(of)).attrs
        if name not in attributes:
            return []
        shape = attributes.get_id(name).shape
        if shape is None or total(shape) > 16:
            raise InputError(f"{self.path}: the attribute {name!r} is no short text.")
        values = np.atleast_1d(np.asarray(attributes[name], dtype=object)).ravel()
        words = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
        return [word[:_LONGEST_TEXT] for word in words]


def _read(file: _Group, group: str | None) -> Trajectories:
    path = file.path
    if "particles" not in file:
        found = shortened(file.names)
        raise InputError(f"{path}: expected the H5MD group /particles, found {found}.")
    groups = file.inside("particles")
    if group is None and len(groups.names) != 1:
        found = shortened(groups.names)
        raise InputError(f"{path}: has the groups {found}; choose one with group=.")
    particles = groups.inside(groups.names[0] if group is None else group)
    position = particles.inside("position")
    x = position.numbers("value")
    if x.ndim != 3:
        raise InputError(f"{path}: expected positions (T, N, n), found shape {x.shape}.")
    v = particles.varying("velocity") if "velocity" in particles else None
    known = [name for name in ("mass", "charge", "species") if name in particles]
    attributes = {name: particles.constant(name) for name in known}
    if "id" in particles:
        x, v = _sorted(path, particles.varying("id"), x, v, attributes)
    units = {
        "length_unit": next(iter(position.words("unit", of="value")), None),
        "time_unit": next(iter(position.words("unit", of="time")), None)
        if "time" in position
        else None,
    }
    return Trajectories.from_arrays(
        x,
        v,
        times=_times(position, len(x)),
        attributes=attributes,
        box=_box(particles.inside("box")) if "box" in particles else None,
        meta={"source": path.name, **units},
    )


def _times(position: _Group, frames: int) -> Any:
    """The times of the frames: written out, or one number for the step between them."""
    if "time" not in position:
        return None
    times = position.numbers("time")
    return times * np.arange(frames) if times.ndim == 0 else times


def _box(box: _Group) -> NDArray[Any] | None:
    """The cell, if space is periodic."""
    boundary = set(box.words("boundary")) or {"periodic"}
    if boundary == {"none"} or "edges" not in box:
        return None
    if boundary != {"periodic"}:
        raise InputError(
            f"{box.path}: box: the boundary is {shortened(sorted(boundary))}; expected 'periodic' "
            "in all dimensions, or 'none' in all."
        )
    return box.constant("edges")


def _sorted(
    path: Path,
    ids: NDArray[Any],
    x: NDArray[Any],
    v: NDArray[Any] | None,
    attributes: dict[str, NDArray[Any]],
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Positions and velocities with the particles in one order, if frames list them in several."""
    if ids.shape not in (x.shape[:2], x.shape[1:2]):
        raise InputError(f"{path}: id: expected shape {x.shape[:2]}, found {ids.shape}.")
    ids = np.broadcast_to(ids, x.shape[:2])
    if (ids == ids[:1]).all():
        return x, v
    order = np.argsort(ids, axis=1)
    sorted_ids = np.take_along_axis(ids, order, axis=1)
    if (sorted_ids != sorted_ids[:1]).any() or (np.diff(sorted_ids[0]) == 0).any():
        raise InputError(f"{path}: id: the particles change from frame to frame, or share an id.")
    for name, values in attributes.items():
        if (values != values.ravel()[:1]).any():
            raise InputError(
                f"{path}: frames list the particles in different orders, so that nobody knows "
                f"whose {name} is whose; write all frames in one order."
            )
    x = np.take_along_axis(x, order[..., None], axis=1)
    return x, None if v is None else np.take_along_axis(v, order[..., None], axis=1)
