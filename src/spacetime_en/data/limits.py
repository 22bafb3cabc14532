"""Limits on the sizes that a file claims: what it can hold, and what fits in memory."""

from __future__ import annotations

from spacetime_en._util import machine
from spacetime_en._util.errors import InputError
from spacetime_en._util.machine import in_words

MOST_EXPANSION = 1032  # the maximum compression ratio of deflate, used by zip, gzip and HDF5
COPIES = 3  # of an array: as read, its velocities, and one to work on


def check_claim(claimed: int, length: int, where: object) -> None:
    """Reject an array that claims more than a (compressed) file of `length` bytes can hold."""
    if claimed > MOST_EXPANSION * length:
        raise InputError(
            f"{where}: claims {in_words(claimed)} of numbers, which its {in_words(length)} cannot "
            "hold; the file is damaged, or was made to do harm."
        )


def check_memory(numbers: int, where: object) -> None:
    """Refuse to read so many numbers if they and their copies do not fit in memory."""
    needed, free = 8 * numbers * COPIES, machine.free_memory()
    if needed > free:
        raise InputError(
            f"{where}: to read it takes {in_words(needed)} of memory, and {in_words(free)} are "
            "free; cut it into smaller files."
        )
