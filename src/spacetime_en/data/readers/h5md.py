"""HDF5 files in the H5MD layout (the extra ``h5md``)."""

from pathlib import Path

from spacetime_en._util.errors import require
from spacetime_en.data.readers.sandbox import read_sandboxed
from spacetime_en.data.trajectories import Trajectories


def read_h5md(path: Path, group: str | None = None) -> Trajectories:
    """One particle group: position, velocity, mass, charge, species, and its box.

    Args:
        path: the file.
        group: below ``/particles``; None: the only one.
    """
    require("h5py", "h5md")
    arrays, units = read_sandboxed("h5md", path, group=group)
    named = {name: arrays.pop(name, None) for name in ("x", "v", "times", "box")}
    return Trajectories.from_arrays(**named, attributes=arrays, meta={"source": path.name, **units})
