"""Dataclasses of tensors that can be moved, pickled, printed, compiled and exported."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import reason, shortened

T = TypeVar("T", bound="TensorFields")


class TensorFields:
    """Base of a dataclass whose fields are tensors or None."""

    def fields(self) -> dict[str, Tensor]:
        """The fields that are not None, by name."""
        values = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: value for name, value in values if value is not None}

    @classmethod
    def _unchecked(cls, fields: dict[str, Any]) -> Self:
        """Build from fields in canonical form, without checks; safe while tracing."""
        self = object.__new__(cls)
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, fields.get(field.name))
        return self

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields replaced, checked like a new one."""
        return type(self)(**(self.fields() | changes))

    def _replace(self, **changes: Tensor) -> Self:
        return self._unchecked(self.fields() | changes)

    def _map(self, fn: Callable[[Tensor], Tensor]) -> Self:
        return self._unchecked({name: fn(value) for name, value in self.fields().items()})

    def empty(self, count: int) -> Self:
        """An uninitialised batch of `count` rows, with the shapes of this one."""
        return self._map(lambda t: t.new_empty((count, *t.shape[1:])))

    def put(self, rows: slice, part: Self) -> None:
        """Write a batch into rows of this one."""
        for name, value in part.fields().items():
            getattr(self, name)[rows] = value

    def to(
        self,
        device: torch.device | torch.dtype | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Move to a device and cast the real-valued fields (masks and indices keep theirs).

        A dtype alone also works: ``graph.to(torch.float64)``.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        keep = ("times",)  # always in float64
        return self._unchecked(
            {
                name: t.to(device, dtype if t.is_floating_point() and name not in keep else None)
                for name, t in self.fields().items()
            }
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={tuple(t.shape)}" for name, t in self.fields().items())
        return f"{type(self).__name__}({shapes})"


def register_pytree(cls: type[T]) -> type[T]:
    """Expose the tensors inside to torch.compile, torch.export and DDP; let torch.load load it."""

    def flatten(obj: Any) -> tuple[list[Any], list[str]]:
        fields = obj.fields()
        return list(fields.values()), list(fields)

    def flatten_with_keys(obj: Any) -> tuple[list[Any], list[str]]:
        tensors, names = flatten(obj)
        return list(zip(map(pytree.GetAttrKey, names), tensors, strict=True)), names

    pytree.register_pytree_node(
        cls,
        flatten,
        lambda values, names: cls._unchecked(dict(zip(names, values, strict=True))),
        serialized_type_name=f"spacetime_en.{cls.__name__}",
        flatten_with_keys_fn=flatten_with_keys,
    )
    torch.serialization.add_safe_globals([cls])
    return cls


def as_tensor(name: str, value: Any) -> Tensor:
    """`value` as a tensor; for arrays of unequal shapes the error suggests ``collate``."""
    if isinstance(value, Tensor):
        if (
            value.is_complex()
            or value.is_quantized
            or value.is_nested
            or value.is_meta
            or value.layout != torch.strided
        ):
            raise InputError(
                f"{name}: expected a dense tensor of real numbers, found one of type {value.dtype}"
                f"{' that is nested' if value.is_nested else f', {value.layout}, {value.device}'}."
            )
        return value
    if np.ma.is_masked(value):
        raise InputError(
            f"{name}: some values are masked; fill them in, and say in observed which are missing."
        )
    if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
        shapes = {tuple(as_tensor(name, item).shape) for item in value}
        if len(shapes) == 1:
            return torch.stack([as_tensor(name, item) for item in value])
        raise _ragged(name, f"tensors of shapes {' and '.join(map(str, sorted(shapes)))}")
    try:
        array = np.asarray(value)
    except ValueError:
        raise _ragged(name, "a list of unequal arrays") from None
    except Exception as error:  # (any object may define __array__)
        raise InputError(f"{name}: cannot be made an array ({reason(error)}).") from None
    if array.dtype.kind not in "bfiu":
        raise InputError(f"{name}: expected numbers, found {shortened(value)}.")
    # A copy in native order and layout: torch takes no reversed, big-endian or read-only array.
    try:
        return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    except TypeError:  # (torch has no long doubles)
        raise InputError(f"{name}: there are no tensors of the type {array.dtype}.") from None


def _ragged(name: str, found: str) -> InputError:
    return InputError(
        f"{name}: expected one array with the same number of frames and nodes in every graph, "
        f"found {found}; build one graph each and join them with spacetime_en.collate, which pads "
        "and says in observed what was there."
    )


def evenly_spaced_indices(count: int, most: int) -> Tensor:
    """At most `most` of the indices 0, ..., count - 1, evenly spaced."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).long()
