"""What runs in the process of :mod:`apart`: the readers of other packages, and nothing of ours.

Called as a program, with the name of a function and its arguments; leaves an ``.npz`` file in the
working directory, or prints why not.
"""

import io
import json
import sys
import warnings
from typing import Any

import numpy as np

FOUND = "found.npz"
MOST_ENDS = 100  # times that a reader may try to read behind the end of a file


class RefusedError(Exception):
    """A sentence about the file, without its name."""


class EndingText(io.TextIOWrapper):
    """A text that does not go on for ever with empty lines, whatever number of them is expected."""

    ends = 0

    def readline(self, *size: int) -> str:  # type: ignore[override]
        line = super().readline(*size)
        self.ends = 0 if line else self.ends + 1
        if self.ends > MOST_ENDS:
            raise RefusedError("ends before its last frame does")
        return line


def ase(path: str, format: str) -> dict[str, Any]:
    """Positions, momenta if all frames have them, numbers, masses and the cell of a file."""
    from ase.io import read

    index = slice(None)
    if format == "traj":
        frames = read(path, index, format, do_not_split_by_at_sign=True)
    else:
        with EndingText(open(path, "rb"), encoding="utf-8") as text:
            frames = read(text, index, format)
    if not frames:
        raise RefusedError("holds no frame")
    first, counts = frames[0], {len(atoms) for atoms in frames}
    if len(counts) > 1:
        raise RefusedError(
            f"the number of atoms changes ({min(counts)} to {max(counts)}); trajectories need the "
            "same nodes in every frame"
        )
    if any((atoms.numbers != first.numbers).any() for atoms in frames):
        raise RefusedError("the order of the atoms changes from frame to frame")
    if any(atoms.pbc.any() and not atoms.pbc.all() for atoms in frames):
        raise RefusedError(
            "the cell is periodic in some directions only, which cannot be kept; make it periodic "
            "in all (beside empty space that changes nothing), or in none"
        )
    periodic = first.pbc.all()
    if any(atoms.pbc.all() != periodic for atoms in frames):
        raise RefusedError("some frames are periodic and some are not")
    if periodic and any(not np.allclose(atoms.cell, first.cell) for atoms in frames):
        raise RefusedError("the cell changes from frame to frame; it must stay the same")
    found = {
        "x": np.stack([atoms.get_positions() for atoms in frames]),
        "mass": first.get_masses(),
        "atomic_number": first.get_atomic_numbers(),
    }
    if all(atoms.has("momenta") for atoms in frames):
        found["v"] = np.stack([atoms.get_velocities() for atoms in frames])
    return found | ({"box": np.array(first.cell)} if periodic else {})


def mdanalysis(
    path: str, topology: str, select: str, format: str, topology_format: str
) -> dict[str, Any]:
    """Positions, velocities, times, masses and the mean cell of the atoms selected."""
    import MDAnalysis

    universe = MDAnalysis.Universe(topology, path, format=format, topology_format=topology_format)
    atoms = universe.select_atoms(select)
    if len(atoms) == 0:
        raise RefusedError(f"select: {select!r} selects no atom")
    x: list[Any] = []
    v: list[Any] = []
    times, cells = [], []
    for step in universe.trajectory:
        x.append(atoms.positions.copy())
        v.append(atoms.velocities.copy() if step.has_velocities else None)
        times.append(float(step.time))
        cells.append(step.triclinic_dimensions)
    if not x:
        raise RefusedError("holds no frame")
    found = {"x": np.stack(x), "times": np.array(times)}
    if all(part is not None for part in v):
        found["v"] = np.stack(v)
    if not (np.diff(times) > 0).all():  # some files have no times
        found["times"] = float(universe.trajectory.dt) * np.arange(len(x))
    if hasattr(atoms, "masses"):
        found["mass"] = atoms.masses
    if all(cell is not None and np.any(cell) for cell in cells):
        found["box"] = np.mean(cells, axis=0)
        if not np.linalg.det(found["box"]) > 0:
            raise RefusedError("the cell is periodic in some directions only, which cannot be kept")
    return found


def main() -> None:
    """Run one of the functions."""
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    _limit(arguments.pop("memory"), arguments.pop("seconds"))
    warnings.simplefilter("ignore")  # about guessed masses and missing fields
    functions: dict[str, Any] = {"ase": ase, "mdanalysis": mdanalysis}
    try:
        np.savez(FOUND, **functions[name](**arguments))
        return
    except RefusedError as error:
        print(error)
    except MemoryError:
        print("needs more memory than there is")
    except Exception as error:  # these readers raise whatever they meet
        what = " ".join(str(error).split())[:300]
        print(f"{name} cannot read it ({type(error).__name__}: {what})")
    sys.exit(1)


def _limit(memory: int, seconds: int) -> None:
    """End this process, and not the machine, if a file asks too much of it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        with open("/proc/self/statm") as file:
            own = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (own + memory, own + memory))
    except (ImportError, OSError, ValueError):  # (no Unix, no Linux, or lower limits already)
        return


if __name__ == "__main__":
    main()
