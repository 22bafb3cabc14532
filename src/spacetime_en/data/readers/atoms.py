"""Atomic trajectories read by ASE: extxyz, LAMMPS dumps, ... (the extra ``ase``)."""

from pathlib import Path

import numpy as np

from spacetime_en._util.errors import require
from spacetime_en.data.readers.sandbox import read_sandboxed
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.valid import check_time_step

# Chosen by the file ending, not by ASE's guess from the contents: some formats of ASE look for
# further files (POTCAR) or for databases.
ASE_FORMATS = {
    ".xyz": "extxyz",
    ".extxyz": "extxyz",
    ".traj": "traj",
    ".lammpstrj": "lammps-dump-text",
    ".dump": "lammps-dump-text",
    ".xdatcar": "vasp-xdatcar",
}


def read_ase(path: Path, time_step: float | None = None) -> Trajectories:
    """Read all frames of a file as one run in ASE's units: Å, and Å per ASE time unit.

    Args:
        path: the file.
        time_step: time between frames, in fs; None: the best fit to the momenta, if the file has
            them, else frames are numbered.
    """
    require("ase", "ase")
    units = require("ase.units", "ase")
    times = None if time_step is None else check_time_step(time_step) * units.fs
    arrays, _ = read_sandboxed("atoms", path, format=ASE_FORMATS[path.suffix.lower()])
    x = arrays["x"]
    return Trajectories.from_arrays(
        x,
        arrays.get("v"),
        times=None if times is None else times * np.arange(len(x)),
        attributes={name: arrays[name] for name in ("mass", "atomic_number")},
        box=arrays.get("box"),
        meta={"source": path.name, "length_unit": "Å", "time_unit": "Å sqrt(u/eV)"},
    )
