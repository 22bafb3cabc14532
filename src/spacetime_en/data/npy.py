"""Read ``.npy`` files whose headers agree with the length of the file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import reason

PER_FRAME_PREFIX = "per_frame_"  # of attributes in .npz that change from frame to frame
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Header:
    """What the header of a ``.npy`` file says about its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool


def read_header(file: IO[bytes], length: int, where: object) -> Header:
    """Read the header of an array of numbers, and nothing after it.

    Args:
        file: at its start.
        length: of the file, in bytes.
        where: used at the start of error messages.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version[0]}.{version[1]} is not known")
        shape, fortran_order, dtype = _HEADERS[version](file)
    except Exception as error:  # (headers are Python syntax, and can be damaged in many ways)
        raise InputError(f"{where}: is no .npy file of an array ({reason(error)}).") from None
    if dtype.kind not in "biufc" or dtype.itemsize == 0:
        raise InputError(f"{where}: expected numbers, found values of type {dtype}.")
    claimed, there = math.prod(shape) * dtype.itemsize, length - file.tell()
    if min(shape, default=0) < 0 or claimed != there:
        raise InputError(
            f"{where}: is cut off or damaged: shape {shape} takes {claimed} bytes, {there} are "
            "there."
        )
    return Header(shape, dtype, fortran_order)


def read_rest(file: IO[bytes], header: Header) -> NDArray[Any]:
    """Read the array after a header; the caller has checked that it fits in memory."""
    array = np.empty(math.prod(header.shape), dtype=header.dtype)
    raw, done = array.view(np.uint8), 0
    while done < len(raw):
        block = file.read(min(1 << 24, len(raw) - done))
        if not block:
            raise EOFError("the file ends before its array does")
        raw[done : done + len(block)] = np.frombuffer(block, np.uint8)
        done += len(block)
    if header.fortran_order:
        return array.reshape(header.shape[::-1]).transpose()
    return array.reshape(header.shape)
