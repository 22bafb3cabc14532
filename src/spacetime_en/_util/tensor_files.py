"""Read named tensors from safetensors files; pickles are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import open_regular

# The types that are read, by safetensors' names; not complex numbers or 8-bit floats.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class TensorSpec(NamedTuple):
    """The type and shape of a tensor in a file, before it is read.

    Args:
        dtype: its type; None if not among ``DTYPES``.
        shape: its shape; the length of the file is checked against it.
    """

    dtype: torch.dtype | None
    shape: tuple[int, ...]


class TensorFileHeader(NamedTuple):
    """The header of a safetensors file.

    Args:
        metadata: texts by name.
        tensors: types and shapes of the tensors by name.
    """

    metadata: dict[str, str]
    tensors: dict[str, TensorSpec]


def read_tensor_header(path: Path) -> TensorFileHeader:
    """The header of a file, without reading the tensors."""
    with _open(path) as file:
        held = {}
        for name in file.keys():  # noqa: SIM118
            part = file.get_slice(name)
            held[name] = TensorSpec(DTYPES.get(part.get_dtype()), tuple(part.get_shape()))
        return TensorFileHeader(dict(file.metadata() or {}), held)


def read_tensors(path: Path, part: str = "") -> dict[str, Tensor]:
    """The tensors whose names begin with `part`, in the precision that each was saved in.

    They are copied out of the file: torch allocates memory at multiples of 64 bytes, but a tensor
    in a file may start anywhere, and from there some CPUs multiply matrices in a different order,
    more slowly and with different last bits.
    """
    with _open(path) as file:
        return {
            name.removeprefix(part): file.get_tensor(name).clone()
            for name in file.keys()  # noqa: SIM118
            if name.startswith(part)
        }


def _open(path: Path) -> Any:
    with open_regular(path) as file:
        head = file.read(9)
    # (The length of a safetensors header can look like a pickle's first bytes; its "{" cannot.)
    pickles = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    if head.startswith(pickles) and not head.endswith(b"{"):
        raise InputError(
            f"{path}: is a pickle (a torch.save file), which can run any code when opened; "
            "only safetensors files are read."
        )
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise InputError(
            f"{path}: is not a whole safetensors file ({error}); it may be truncated: "
            "copy or save it again."
        ) from None
