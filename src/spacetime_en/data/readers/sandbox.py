"""Read files with other packages, in a separate process with limits on memory and time.

h5py, ASE and MDAnalysis were made for trusted files: they allocate whatever a header claims, read
past the end of a file, write caches next to it, or crash. Whatever happens there, this process
gets either arrays or one error message.
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

from spacetime_en._util.errors import InputError
from spacetime_en._util.machine import free_memory, in_words
from spacetime_en._util.schema import open_regular, read_json, reason
from spacetime_en.data.readers.arrays import read_archive
from spacetime_en.data.readers.foreign import program

SECONDS, SECONDS_PER_MB = 20, 20  # of CPU time; the slowest reader takes one per MB


def read_sandboxed(
    module: str, path: Path, **options: Any
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Run a reader on a file, and return its arrays and texts, by name.

    Args:
        module: the name of a module in :mod:`foreign`.
        path: the file.
        options: arguments of its function; values of type Path are also files.
    """
    files = {"path": path} | {k: v for k, v in options.items() if isinstance(v, Path)}
    limits = {
        "memory": free_memory(),
        "seconds": SECONDS + SECONDS_PER_MB * (path.stat().st_size >> 20),
    }
    with tempfile.TemporaryDirectory() as name:
        # The process works in its own folder, where the files have plain names: companion files
        # that it looks for do not exist there, and whatever it writes is deleted afterwards.
        folder = Path(name)
        for key, file in files.items():
            open_regular(file).close()
            (folder / f"{key}{file.suffix.lower()}").symlink_to(file.resolve())
            options[key] = f"{key}{file.suffix.lower()}"
        done = subprocess.run(
            [sys.executable, "-P", program.__file__, module, json.dumps(options | limits)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode < 0:
            raise InputError(f"{path}: {_killed(-done.returncode, limits)}.")
        if done.returncode > 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["cannot be read"]
            raise InputError(f"{path}: {reason(ValueError(said[-1]), most=400)}.")
        return read_archive(folder / "found.npz"), read_json(folder / "found.json", dict[str, str])


def _killed(number: int, limits: dict[str, int]) -> str:
    if number == getattr(signal, "SIGXCPU", None):
        return f"its reader came to no end in {limits['seconds']} seconds; the file is damaged"
    name, memory = signal.Signals(number).name, in_words(limits["memory"])
    return (
        f"its reader crashed ({name}); the file is damaged, or needs more than {memory} of memory"
    )
