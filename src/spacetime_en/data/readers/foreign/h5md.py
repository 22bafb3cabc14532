"""HDF5 files in the H5MD layout, read by h5py.

An HDF5 file may link to other files, and claim more numbers than it holds; only what is stored in
the file itself is read. Damaged files can make the library crash or search for ever.
"""

import math
import os
import sys
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

_MOST_EXPANSION = 1032  # the maximum compression ratio of deflate
_MOST_WORDS, _LONGEST_WORD = 16, 100


def read(path: str, group: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Read x (T, N, n), and, if present, v, observed, times, box, mass, ...; and the units."""
    with h5py.File(path, "r") as opened:
        file = Group(opened)
        if "particles" not in file:
            sys.exit(f"expected the H5MD group /particles, found {file.names}")
        groups = file.inside("particles")
        if group is None and len(groups.names) != 1:
            sys.exit(f"has the groups {groups.names}; choose one with group=")
        particles = groups.inside(groups.names[0] if group is None else group)
        position = particles.inside("position")
        arrays = {"x": position.numbers("value")}
        if arrays["x"].ndim != 3:
            sys.exit(f"expected positions (T, N, n), found shape {arrays['x'].shape}")
        if "velocity" in particles:
            arrays["v"] = particles.varying("velocity")
        if "observed" in particles:
            arrays["observed"] = particles.varying("observed")
        constants = [name for name in ("mass", "charge", "species") if name in particles]
        arrays |= {name: particles.constant(name) for name in constants}
        if "id" in particles:
            _sort(arrays, particles.varying("id"), constants)
        if "time" in position:
            times = position.numbers("time")  # or the constant step between them
            arrays["times"] = times * np.arange(len(arrays["x"])) if times.ndim == 0 else times
        box = particles.inside("box") if "box" in particles else None
        if box is not None and _is_periodic(box):
            arrays["box"] = box.constant("edges")
        units = {"length_unit": "value", "time_unit": "time"}
        words = {unit: position.words("unit", of=name) for unit, name in units.items()}
        return arrays, {unit: several[0] for unit, several in words.items() if several}


class Group:
    """A group of the file; only members stored in this file are accessible."""

    def __init__(self, group: Any) -> None:
        self.group, self.names = group, list(group)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def inside(self, name: str) -> "Group":
        """A subgroup."""
        member = self._member(name)
        if not isinstance(member, h5py.Group):
            sys.exit(f"expected a group {member.name!r}")
        return Group(member)

    def _member(self, name: str) -> Any:
        where = f"{self.group.name.rstrip('/')}/{name}"
        if name not in self:
            sys.exit(f"{where!r} is missing; is the file in the H5MD layout?")
        if not isinstance(self.group.get(name, getlink=True), h5py.HardLink):
            sys.exit(f"{where!r} is a link to something else, and links are not followed")
        return self.group[name]

    def numbers(self, name: str) -> NDArray[Any]:
        """A numeric data set that is complete."""
        data = self._member(name)
        if not isinstance(data, h5py.Dataset) or data.shape is None:
            sys.exit(f"{data.name!r}: expected an array of numbers")
        if data.dtype.kind not in "biufc":
            sys.exit(f"{data.name!r}: expected numbers, found values of type {data.dtype}")
        if data.external is not None or data.is_virtual:
            sys.exit(f"{data.name!r} lies in other files, which are not read")
        claimed = math.prod(map(int, data.shape)) * data.dtype.itemsize
        stored = min(data.id.get_storage_size(), os.path.getsize(data.file.filename))
        if claimed > _MOST_EXPANSION * stored:
            sys.exit(f"{data.name!r} claims {claimed} bytes of numbers, which are not in the file")
        return np.asarray(data[()])

    def varying(self, name: str) -> NDArray[Any]:
        """A time-dependent element: a data set, or a group with ``value``."""
        if isinstance(self._member(name), h5py.Group):
            return self.inside(name).numbers("value")
        return self.numbers(name)

    def constant(self, name: str) -> NDArray[Any]:
        """An element that must be constant in time, without a time axis."""
        if not isinstance(self._member(name), h5py.Group):
            return self.numbers(name)
        values = self.inside(name).numbers("value")
        if values.ndim == 0 or len(values) == 0 or not (values == values[:1]).all():
            sys.exit(f"{name} changes from frame to frame; it must stay the same")
        return np.asarray(values[0])

    def words(self, name: str, of: str | None = None) -> list[str]:
        """The words of a short attribute of this group or of one of its members, if present."""
        if of is not None and of not in self:
            return []
        attributes = (self.group if of is None else self._member(of)).attrs
        if name not in attributes:
            return []
        shape = attributes.get_id(name).shape
        if shape is None or math.prod(shape) > _MOST_WORDS:
            sys.exit(f"the attribute {name!r} is no short text")
        values = np.atleast_1d(np.asarray(attributes[name], dtype=object)).ravel()
        words = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
        return [word[:_LONGEST_WORD] for word in words]


def _is_periodic(box: Group) -> bool:
    boundary = set(box.words("boundary")) or {"periodic"}
    if boundary == {"none"} or ("edges" not in box and not box.words("boundary")):
        return False
    if boundary != {"periodic"}:
        sys.exit(
            f"box: the boundary is {sorted(boundary)}; expected 'periodic' in all dimensions, or "
            "'none' in all"
        )
    if "edges" not in box:
        sys.exit("box: the boundary is periodic, but the edges are missing")
    return True


def _sort(arrays: dict[str, Any], ids: NDArray[Any], constants: list[str]) -> None:
    """Put the particles in a fixed order, if frames list them in different ones."""
    shape = arrays["x"].shape[:2]
    if ids.shape not in (shape, shape[1:]):
        sys.exit(f"id: expected shape {shape}, found {ids.shape}")
    ids = np.broadcast_to(ids, shape)
    if (ids == ids[:1]).all():
        return
    order = np.argsort(ids, axis=1)
    in_order = np.take_along_axis(ids, order, axis=1)
    if (in_order != in_order[:1]).any() or (np.diff(in_order[0]) == 0).any():
        sys.exit("id: the particles change from frame to frame, or share an id")
    for name in constants:
        if (arrays[name] != arrays[name].ravel()[:1]).any():
            sys.exit(
                "frames list the particles in different orders, so that nobody knows whose "
                f"{name} is whose; write all frames in one order"
            )
    for name in ("x", "v", "observed"):
        if name in arrays and arrays[name].shape[:2] == shape:
            trailing = (None,) * (arrays[name].ndim - 2)
            arrays[name] = np.take_along_axis(arrays[name], order[..., *trailing], axis=1)
