"""Anything that MDAnalysis reads: DCD, XTC, TRR, ... (the extra ``mdanalysis``)."""

import os
import warnings
from pathlib import Path

import numpy as np

from spacetime_en.data.trajectories import Trajectories
from spacetime_en.errors import InputError, require


def read_mdanalysis(
    path: Path, topology: str | os.PathLike[str] | None = None, select: str = "all"
) -> Trajectories:
    """All frames of a trajectory, as one run, in Å and ps.

    Args:
        path: the trajectory.
        topology: the file that names the atoms (PSF, PDB, GRO, TPR, ...).
        select: which atoms, in MDAnalysis's language, such as ``"name CA"``.
    """
    mda = require("MDAnalysis", "mdanalysis")
    if topology is None:
        raise InputError(
            f"topology: {path.name} has no atom names; give the topology file as well."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about guessed masses and missing fields
            universe = mda.Universe(str(topology), str(path))
            atoms = universe.select_atoms(select)
            if len(atoms) == 0:
                raise InputError(f"select: {select!r} selects no atom.")
            frames = [
                (atoms.positions.copy(), atoms.velocities.copy() if step.has_velocities else None)
                for step in universe.trajectory
            ]
            times = np.array([step.time for step in universe.trajectory], dtype=float)
            if not (np.diff(times) > 0).all():  # some files have no times
                times = float(universe.trajectory.dt) * np.arange(len(frames))
            cells = [step.triclinic_dimensions for step in universe.trajectory]
            cell = None if any(c is None for c in cells) else np.mean(cells, axis=0)
            masses = atoms.masses if hasattr(atoms, "masses") else None
    except InputError:
        raise
    except Exception as error:  # MDAnalysis's readers raise whatever they meet
        raise InputError(
            f"{path}: MDAnalysis cannot read it ({type(error).__name__}: {error})."
        ) from None
    v = None if frames[0][1] is None else np.stack([f[1] for f in frames])  # type: ignore[misc]
    return Trajectories.from_arrays(
        np.stack([f[0] for f in frames]),
        v,
        times=times,
        attributes={} if masses is None else {"mass": masses},
        box=cell if cell is not None and np.linalg.det(cell) > 0 else None,
        meta={
            "source": path.name,
            "select": select,
            "length_unit": "Å",
            "time_unit": "ps",
            # At constant pressure the cell breathes; its mean stands for all frames.
            "box": "mean over the frames" if cell is not None else None,
        },
    )
