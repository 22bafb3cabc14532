"""Anything that ASE reads: extxyz, LAMMPS dumps, ... (the extra ``ase``)."""

from pathlib import Path

import numpy as np

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError, require


def read_ase(path: Path, time_step: float | None = None) -> Trajectories:
    """All frames of a file, as one run in ASE's units: Å, and Å per ASE time unit for velocities.

    Args:
        path: the file.
        time_step: time between frames, in fs; None: with momenta in the file, what fits them
            best, else frames are numbered.
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
    if any((atoms.numbers != first.numbers).any() for atoms in frames):
        raise InputError(f"{path}: the order of the atoms changes from frame to frame.")
    if first.pbc.all() and any(not np.allclose(a.cell, first.cell) for a in frames):
        raise InputError(f"{path}: the cell changes from frame to frame; it must stay the same.")
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
