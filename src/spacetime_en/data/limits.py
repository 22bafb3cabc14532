"""Limits on what a file may claim: no more than it can hold, and no more than fits in memory."""

from __future__ import annotations

from spacetime_en._util import machine
from spacetime_en._util.errors import InputError
from spacetime_en._util.machine import in_words

MOST_EXPANSION = 1032  # times; deflate, which packs zip, gzip and HDF5 files, can do no more
COPIES = 3  # of an array: as it was read, velocities beside it, and one to work on


def check_claim(claimed: int, length: int, where: object) -> None:
    """Refuse an array that claims more bytes than a (compressed) file of `length` bytes holds."""
    if claimed > MOST_EXPANSION * length:
        raise InputError(
            f"{where}: claims {in_words(claimed)} of numbers, which its {in_words(length)} cannot "
            "hold; the file is damaged, or was made to do harm."
        )


def check_memory(numbers: int, where: object) -> None:
    """Refuse to read so many numbers if they, and copies of them, do not fit in memory."""
    needed, free = 8 * numbers * COPIES, machine.free_memory()
    if needed > free:
        raise InputError(
            f"{where}: to read it takes {in_words(needed)} of memory, and {in_words(free)} are "
            "free; cut it into smaller files."
        )
