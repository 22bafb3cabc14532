"""How much of what a file claims is believed: no more than it is long, and than there is memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from spacetime_en.errors import InputError

MOST_EXPANSION = 1032  # times; deflate, which packs zip, gzip and HDF5 files, can do no more
COPIES = 3  # of an array: as it was read, velocities beside it, and one to work on


def check_claim(claimed: int, length: int, where: object) -> None:
    """Refuse an array that claims more bytes than a (compressed) file of `length` bytes holds."""
    if claimed > MOST_EXPANSION * length:
        raise InputError(
            f"{where}: claims {in_bytes(claimed)} of numbers, which its {in_bytes(length)} cannot "
            "hold; the file is damaged, or was made to do harm."
        )


def check_memory(numbers: int, where: object) -> None:
    """Refuse to read so many numbers if they, and what is made of them, do not fit in memory."""
    needed, free = 8 * numbers * COPIES, free_memory()
    if needed > free:
        raise InputError(
            f"{where}: to read it takes {in_bytes(needed)} of memory, and {in_bytes(free)} are "
            "free; cut it into smaller files."
        )


def free_memory() -> int:
    """Bytes of memory that this process may still take."""
    return min([_machine(), *_group(), *_process()])


def in_bytes(count: int) -> str:
    """A number of bytes as people say it."""
    power = min((max(count, 1).bit_length() - 1) // 10, 6)
    return f"{count / 1024**power:.3g} {('bytes', 'KB', 'MB', 'GB', 'TB', 'PB', 'EB')[power]}"


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62  # nobody says


def _group() -> Iterable[int]:
    """What is left of the limit of a container."""
    try:
        most, used = (
            Path(f"/sys/fs/cgroup/memory.{what}").read_text() for what in ("max", "current")
        )
        yield int(most) - int(used)
    except (OSError, ValueError):  # no container, or "max"
        return


def _process() -> Iterable[int]:
    """What is left of the limit of this process (ulimit -v)."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    if most != resource.RLIM_INFINITY:
        yield max(0, most - used)


def total(shape: Iterable[int]) -> int:
    """The number of entries of an array, however many (NumPy's own product may overflow)."""
    return math.prod(int(size) for size in shape)
