"""Frames of atoms, read by ASE."""

import io
import sys
from typing import Any

import numpy as np
from ase.io import read as read_frames

_MOST_ENDS = 100  # how often a reader may try to read past the end of a file


class EndingText(io.TextIOWrapper):
    """A text stream that stops if a reader keeps asking for lines after its end."""

    ends = 0

    def readline(self, *size: int) -> str:  # type: ignore[override]
        line = super().readline(*size)
        self.ends = 0 if line else self.ends + 1
        if self.ends > _MOST_ENDS:
            sys.exit("ends before its last frame does")
        return line


def read(path: str, format: str) -> tuple[dict[str, Any], dict[str, str]]:
    """x (T, N, 3), v if all frames have momenta, mass, atomic_number, and box if periodic."""
    index = slice(None)
    if format == "traj":
        frames = read_frames(path, index, format, do_not_split_by_at_sign=True)
    else:
        with EndingText(open(path, "rb"), encoding="utf-8") as text:
            frames = read_frames(text, index, format)
    if not frames:
        sys.exit("holds no frame")
    first, counts = frames[0], {len(atoms) for atoms in frames}
    if len(counts) > 1:
        sys.exit(
            f"the number of atoms changes ({min(counts)} to {max(counts)}); trajectories need the "
            "same nodes in every frame"
        )
    if any((atoms.numbers != first.numbers).any() for atoms in frames):
        sys.exit("the order of the atoms changes from frame to frame")
    if any(atoms.pbc.any() and not atoms.pbc.all() for atoms in frames):
        sys.exit(
            "the cell is periodic in some directions only, which cannot be kept; make it periodic "
            "in all (beside empty space that changes nothing), or in none"
        )
    periodic = first.pbc.all()
    if any(atoms.pbc.all() != periodic for atoms in frames):
        sys.exit("some frames are periodic and some are not")
    if periodic and any(not np.allclose(atoms.cell, first.cell) for atoms in frames):
        sys.exit("the cell changes from frame to frame; it must stay the same")
    arrays = {
        "x": np.stack([atoms.get_positions() for atoms in frames]),
        "mass": first.get_masses(),
        "atomic_number": first.get_atomic_numbers(),
    }
    if all(atoms.has("momenta") for atoms in frames):
        arrays["v"] = np.stack([atoms.get_velocities() for atoms in frames])
    return arrays | ({"box": np.array(first.cell)} if periodic else {}), {}
