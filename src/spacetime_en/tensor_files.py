"""Named tensors on disk: safetensors files, and no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from spacetime_en.errors import InputError


def read_metadata(path: Path) -> dict[str, str]:
    """What the header of a safetensors file says beside the tensors' shapes."""
    with _open(path) as file:
        return dict(file.metadata() or {})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, with the precision that each was saved in.

    They are copied out of the file: memory of torch's own begins at a multiple of 64 bytes, a
    tensor in a file anywhere, and from there some CPUs multiply matrices in another order, more
    slowly and to other last bits.
    """
    with _open(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def _open(path: Path) -> Any:
    with path.open("rb") as file:
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
