"""Building models from a config and weights: the file bounds their size, whatever the config."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from spacetime_en._util.errors import InputError, first_line
from spacetime_en._util.tensor_files import TensorSpec, read_tensor_header, read_tensors

if TYPE_CHECKING:
    from spacetime_en.nn.forecaster import Forecaster

M = TypeVar("M", bound="Forecaster")
EXTRA_NUMBERS = 10_000_000  # elements that are not in the file, such as tables of waves
MAX_LAYERS = 2_000  # layers and tensors allowed for any model,
LAYERS_PER_TENSOR = 20  # and as many more for every tensor in its file


def build(make: Callable[[], M], where: str, held: Mapping[str, TensorSpec] | None = None) -> M:
    """Call a constructor, but stop it if the model becomes too large.

    It is first run on torch's "meta" device, which takes no memory, because a constructor may fill
    a tensor before its size can be checked.

    Args:
        make: calls the constructor.
        where: begins the error message.
        held: the tensors of the file that holds the weights, which bound the size of the model;
            None: the bound is this machine's memory.
    """
    layers, numbers = 50 * MAX_LAYERS, _memory() // 16  # (four bytes; moments and a gradient)
    if held is not None:
        layers = MAX_LAYERS + LAYERS_PER_TENSOR * len(held)
        numbers = EXTRA_NUMBERS + 4 * sum(math.prod(tensor.shape) for tensor in held.values())
    try:
        with _at_most(layers, numbers):
            try:
                with torch.random.fork_rng(devices=[]), torch.device("meta"):
                    make()
            except InputError:
                raise
            except Exception:  # (a constructor may read values, which meta tensors lack)
                pass
        with _at_most(layers, numbers):
            return make()
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (RuntimeError, MemoryError, OverflowError) as error:  # (torch's own: too large)
        raise InputError(f"{where}: its model cannot be built ({first_line(error)}).") from None
    except Exception as error:
        if held is None:  # an error in a user's own class: show the full traceback
            raise
        raise InputError(
            f"{where}: its config does not fit its class ({first_line(error)})."
        ) from None


def load_model(make: Callable[[], M], path: Path, part: str = "") -> M:
    """Build a model and load its weights from a file.

    Args:
        make: calls the constructor.
        path: a safetensors file.
        part: the prefix of the names of its weights there.
    Returns: the model in eval mode, with each weight in the dtype in which it was saved.
    """
    tensors = read_tensor_header(path).tensors
    held = {name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)}
    model = build(make, str(path), held)
    check_fits(model.state_dict(), held, path)
    weights = read_tensors(path, part)
    check_finite(weights, path)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def check_fits(wanted: Mapping[str, Tensor], held: Mapping[str, TensorSpec], path: Path) -> None:
    """Refuse a file whose tensors differ from the model's in name, shape or kind."""
    for name, tensor in wanted.items():
        if name not in held or held[name].shape != tensor.shape:
            shape = f"shape {held[name].shape}" if name in held else "nothing"
            raise InputError(
                f"{path}: holds the weights of another model: for {name!r} expected shape "
                f"{tuple(tensor.shape)}, found {shape:.100}."
            )
        dtype = held[name].dtype
        both_real = dtype is not None and dtype.is_floating_point and tensor.is_floating_point()
        if not both_real and dtype != tensor.dtype:
            kind = "numbers of a kind that is not read" if dtype is None else str(dtype)
            raise InputError(f"{path}: {name!r} is {kind}, expected {tensor.dtype}.")
    if extra := sorted(set(held) - set(wanted)):
        raise InputError(
            f"{path}: holds the weights of another model: {extra[0]!r:.100} has no place."
        )


def check_finite(tensors: Mapping[str, Tensor], path: Path | str) -> None:
    """Refuse weights that would turn every forecast into NaN."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(
                f"{path}: {name!r} holds NaN or infinite numbers; the model cannot be used, take "
                "an earlier one or train again."
            )


@contextmanager
def _at_most(layers: int, numbers: int) -> Iterator[None]:
    """Within the block, stop models built on this thread that have more layers or elements."""
    thread, left = threading.get_ident(), [layers, numbers]

    def count(module: Any, name: str, value: Any) -> None:
        if threading.get_ident() == thread:
            left[0] -= 1
            left[1] -= value.numel() if isinstance(value, Tensor) else 0
        if left[0] < 0:
            raise InputError(f"its config asks for more than {layers:,} layers and weights.")
        if left[1] < 0:
            raise InputError(f"its config asks for more than {numbers:,} numbers.")

    hooks = [
        register_module_parameter_registration_hook(count),
        register_module_buffer_registration_hook(count),
        register_module_module_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _memory() -> int:
    """This machine's memory in bytes."""
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 1 << 38
