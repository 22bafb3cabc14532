"""HDF5 files in the H5MD layout (the extra ``h5md``)."""

from pathlib import Path
from typing import Any

from spacetime_en._util.errors import require
from spacetime_en.data.readers.sandbox import read_sandboxed
from spacetime_en.data.trajectories import Trajectories


def read_h5md(path: Path, group: str | None = None) -> Trajectories:
    """Read one particle group: position, velocity, mass, charge, species, and its box.

    Particles are present where the element ``observed`` (not part of H5MD) says so or, without it,
    where their position is not NaN.

    Args:
        path: the file.
        group: below ``/particles``; None: the only one.
    """
    require("h5py", "h5md")
    arrays, units = read_sandboxed("h5md", path, group=group)
    optional = ("v", "times", "box", "observed")
    named: dict[str, Any] = {name: arrays.pop(name, None) for name in ("x", *optional)}
    return Trajectories.from_arrays(**named, attributes=arrays, meta={"source": path.name, **units})
