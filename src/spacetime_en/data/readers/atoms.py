"""Anything that ASE reads: extxyz, LAMMPS dumps, ... (the extra ``ase``)."""

from pathlib import Path

import numpy as np

from spacetime_en.data.readers import require
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError


def read_ase(path: Path, time_step: float | None = None) -> Trajectories:
    """All frames of a file, as one run in ASE's units: Å, and Å per ASE time unit for velocities.

    Args:
        path: the file.
        time_step: time between frames, in fs; None: frames are numbered, and velocities are
            differences unless the file has momenta.
    """
    io = require("ase.io", "ase")
    units = require("ase.units", "ase")
    try:
        frames = io.read(path, index=":")
    except Exception as error:  # ASE's readers raise whatever they meet
        raise InputError(f"{path}: ASE cannot read it ({type(error).__name__}: {error}).") from None
    if not frames:
        raise InputError(f"{path}: holds no frame.")
    counts = {len(atoms) for atoms in frames}
    if len(counts) > 1:
        raise InputError(
            f"{path}: the number of atoms changes ({min(counts)} to {max(counts)}); trajectories "
            "need the same nodes in every frame."
        )
    first = frames[0]
    moving = all(atoms.has("momenta") for atoms in frames)
    v = np.stack([atoms.get_velocities() for atoms in frames]) if moving else None
    times = None if time_step is None else np.arange(len(frames)) * time_step * units.fs
    attributes = {"mass": first.get_masses(), "atomic_number": first.get_atomic_numbers()}
    return Trajectories.from_arrays(
        np.stack([atoms.get_positions() for atoms in frames]),
        v,
        times=times,
        attributes=attributes,
        box=np.array(first.cell) if first.pbc.all() else None,
        meta={"source": path.name, "length_unit": "Å", "time_unit": "Å sqrt(u/eV)"},
    )
