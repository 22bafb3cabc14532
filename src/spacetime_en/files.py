"""Writing files whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary name beside `path`, then rename it.

    An interruption at any moment leaves the old file or the new one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # (safetensors makes files that only their owner reads)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # or a crash of the machine may leave a name without its bytes
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
