"""Files that other packages read, in a process of its own with limits of memory and time.

The readers of ASE and MDAnalysis were made for files of friends: they take memory for what a header
claims, read on behind the end of a file, keep notes beside it. Whatever happens there, this process
gets arrays or one sentence.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spacetime_en.data.readers import foreign
from spacetime_en.data.readers.arrays import read_archive
from spacetime_en.errors import InputError
from spacetime_en.limits import free_memory, in_bytes
from spacetime_en.schema import open_regular, reason

SECONDS, SECONDS_PER_MB = 60, 20  # of computing; the slowest of the readers takes one for a MB


def read_apart(package: str, path: Path, **options: Any) -> dict[str, NDArray[Any]]:
    """The arrays that a package finds in a file, by name.

    Args:
        package: the name of a function of :mod:`foreign`.
        path: the file.
        options: of the function; the values of type Path are files, too.
    """
    files = {"path": path} | {k: v for k, v in options.items() if isinstance(v, Path)}
    limits = {
        "memory": free_memory(),
        "seconds": SECONDS + SECONDS_PER_MB * (path.stat().st_size >> 20),
    }
    with tempfile.TemporaryDirectory() as name:
        # The process works in a folder of its own, where the files have plain names: what it looks
        # for beside them is not there, and what it leaves beside them is gone afterwards.
        folder = Path(name)
        for key, file in files.items():
            open_regular(file).close()
            (folder / f"{key}{file.suffix.lower()}").symlink_to(file.resolve())
            options[key] = f"{key}{file.suffix.lower()}"
        done = subprocess.run(
            [sys.executable, "-P", foreign.__file__, package, json.dumps(options | limits)],
            cwd=folder,
            capture_output=True,
            check=False,
        )
        if done.returncode < 0:
            raise InputError(f"{path}: {_killed(-done.returncode, limits)}.")
        if done.returncode > 0:
            said = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
            raise InputError(f"{path}: {reason(ValueError(*said)) if said else 'cannot be read'}.")
        return read_archive(folder / foreign.FOUND)


def _killed(number: int, limits: dict[str, int]) -> str:
    if number == getattr(signal, "SIGXCPU", None):
        return f"its reader found no end in {limits['seconds']} seconds"
    memory = in_bytes(limits["memory"])
    name = signal.Signals(number).name
    return (
        f"its reader crashed ({name}); the file is damaged, or needs more than {memory} of memory"
    )
