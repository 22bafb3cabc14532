"""Frames of molecules, read by MDAnalysis."""

import sys
from typing import Any

import MDAnalysis
import numpy as np


def read(
    path: str, topology: str, select: str, format: str, topology_format: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read x (T, N, 3), times, v and mass if present, and box, the mean cell, if periodic."""
    universe = MDAnalysis.Universe(topology, path, format=format, topology_format=topology_format)
    atoms = universe.select_atoms(select)
    if len(atoms) == 0:
        sys.exit(f"select: {select!r} selects no atom")
    x: list[Any] = []
    v: list[Any] = []
    times, cells = [], []
    for step in universe.trajectory:
        x.append(atoms.positions.copy())
        v.append(atoms.velocities.copy() if step.has_velocities else None)
        times.append(float(step.time))
        cells.append(step.triclinic_dimensions)
    if not x:
        sys.exit("holds no frame")
    arrays = {"x": np.stack(x), "times": np.array(times)}
    if all(part is not None for part in v):
        arrays["v"] = np.stack(v)
    if not (np.diff(times) > 0).all():  # some files have no times
        arrays["times"] = float(universe.trajectory.dt) * np.arange(len(x))
    if hasattr(atoms, "masses"):
        arrays["mass"] = atoms.masses
    if all(cell is not None and np.any(cell) for cell in cells):
        arrays["box"] = np.mean(cells, axis=0)
        if not np.linalg.det(arrays["box"]) > 0:
            sys.exit("the cell is periodic in some directions only, which cannot be kept")
    return arrays, {}
