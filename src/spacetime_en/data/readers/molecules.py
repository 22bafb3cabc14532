"""Molecular trajectories read by MDAnalysis: DCD, XTC, TRR, ... (the extra ``mdanalysis``)."""

import os
from pathlib import Path

from spacetime_en._util.errors import InputError, require
from spacetime_en.data.readers.sandbox import read_sandboxed
from spacetime_en.data.trajectories import Trajectories

MDANALYSIS_FORMATS = {".dcd": "DCD", ".xtc": "XTC", ".trr": "TRR", ".nc": "NCDF", ".ncdf": "NCDF"}
# Single-file topologies only: others include further files (itp), or are databases (dms).
TOPOLOGIES = {
    ".psf": "PSF",
    ".pdb": "PDB",
    ".ent": "PDB",
    ".gro": "GRO",
    ".tpr": "TPR",
    ".crd": "CRD",
    ".mol2": "MOL2",
    ".data": "DATA",
    **dict.fromkeys((".top", ".prmtop", ".parm7"), "TOP"),
}


def read_mdanalysis(
    path: Path, topology: str | os.PathLike[str] | None = None, select: str = "all"
) -> Trajectories:
    """Read all frames of a trajectory as one run, in Å and ps.

    Args:
        path: the trajectory.
        topology: the file that names the atoms (PSF, PDB, GRO, TPR, ...).
        select: which atoms, in MDAnalysis's selection language, such as ``"name CA"``.
    """
    require("MDAnalysis", "mdanalysis")
    if topology is None:
        raise InputError(
            f"topology: {path.name} has no atom names; give the topology file as well."
        )
    named = Path(topology)
    if named.suffix.lower() not in TOPOLOGIES or not named.exists():
        what = "there is no such file" if not named.exists() else "no reader for it"
        raise InputError(f"topology: {named}: {what}; known are {', '.join(sorted(TOPOLOGIES))}.")
    arrays, _ = read_sandboxed(
        "molecules",
        path,
        topology=named,
        select=select,
        format=MDANALYSIS_FORMATS[path.suffix.lower()],
        topology_format=TOPOLOGIES[named.suffix.lower()],
    )
    return Trajectories.from_arrays(
        arrays["x"],
        arrays.get("v"),
        times=arrays["times"],
        attributes={"mass": arrays["mass"]} if "mass" in arrays else {},
        box=arrays.get("box"),
        meta={
            "source": path.name,
            "select": select,
            "length_unit": "Å",
            "time_unit": "ps",
            # At constant pressure the cell fluctuates; its mean is used for all frames.
            "box": "mean over the frames" if "box" in arrays else None,
        },
    )
