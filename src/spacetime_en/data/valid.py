"""Validate arrays that become trajectories: finite real numbers with consistent shapes.

All data pass through here, whether from a file, from a folder on disk or from Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import FLOAT32_MAX, argument, check_name, reason, shortened

if TYPE_CHECKING:
    from spacetime_en.data.trajectories import LazyArray, Trajectories

Floats = NDArray[np.float64]

SHORTEST = float(np.finfo(np.float32).tiny)  # hence no time between frames may be smaller
MOST_STEPS = 2**53  # integers up to this are exact in float64
MOST_ATTRIBUTES = 500  # each is a file that is kept open while written
PER_FRAME = ("run", "frame", "node")  # the axes of x, v and per-frame attributes
RESERVED = ("x", "v", "observed", "ids")  # names that attributes must not have
_AT_ONCE = 1 << 22  # numbers checked at once: a set on disk may have billions


def as_floats(name: str, value: Any, kinds: str = "iuf") -> Floats:
    """Convert `value` to an array of float64.

    Args:
        name: used at the start of the error message.
        value: anything that NumPy can convert to an array, in any byte order.
        kinds: NumPy's codes of the types allowed: signed and unsigned integers, real numbers.
    """
    if np.ma.is_masked(value):
        raise InputError(f"{name}: some values are masked; fill them in, or cut them out.")
    try:
        array = np.asarray(value)
    except Exception as error:  # (anything may have its own __array__)
        raise InputError(f"{name}: cannot be made an array ({reason(error)}).") from None
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: expected real numbers, found values of type {array.dtype}.")
    with np.errstate(over="ignore"):  # from long doubles
        return np.asarray(array, dtype=np.float64)


def as_integers(name: str, value: Any) -> NDArray[np.int64]:
    """Convert `value` to an array of integers."""
    numbers = as_floats(name, value)
    if not (np.abs(numbers) <= MOST_STEPS).all():
        raise InputError(f"{name}: expected whole numbers up to 2^53, found {preview(numbers)}.")
    if (numbers != np.floor(numbers)).any():
        raise InputError(f"{name}: expected whole numbers, found {preview(numbers)}.")
    return numbers.astype(np.int64)


def as_booleans(name: str, value: Any) -> NDArray[np.bool_]:
    """Convert `value`, of booleans or of 0 and 1, to an array of booleans."""
    numbers = as_floats(name, value, kinds="iufb")
    if not np.isin(numbers, (0, 1)).all():
        raise InputError(f"{name}: expected True or False, found {preview(numbers)}.")
    return numbers.astype(bool)


def check_time_step(time_step: Any) -> float:
    """Convert the time between frames to a number."""
    step = as_floats("time_step", time_step)
    if step.shape != () or not SHORTEST <= step <= FLOAT32_MAX:
        raise InputError(
            f"time_step: expected the time between frames, found {shortened(time_step)}."
        )
    return float(step)


def check_single_precision(
    name: str, values: LazyArray, axes: Sequence[str] = ("run", "node", "node")
) -> None:
    """Reject NaN, infinity, and numbers too large for single precision.

    Args:
        name: of the array.
        values: of any shape, the first axis being runs; read piece by piece.
        axes: the meaning of each axis; for arrays with four axes, :data:`PER_FRAME`.
    """
    rows = max(1, _AT_ONCE // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, len(values), rows):
        piece = np.asarray(values[start : start + rows])
        if piece.size == 0 or (piece.min() >= -FLOAT32_MAX and piece.max() <= FLOAT32_MAX):
            continue
        place = np.argwhere(~(np.abs(piece) <= FLOAT32_MAX))[0]
        value = piece[tuple(place)]
        where = [start + int(place[0]), *place[1:].tolist()]
        words = PER_FRAME if piece.ndim == 4 else axes
        at = ", ".join(f"{axis} {i}" for axis, i in zip(words, where, strict=False))
        if np.isfinite(value):
            raise InputError(
                f"{name}: {value:g} at {at} is beyond {FLOAT32_MAX:.2g}, where single precision "
                "ends; use other units."
            )
        raise InputError(f"{name}: NaN or infinite values at {at}; mend or cut them out.")


def check_layout(t: Trajectories) -> None:
    """Reject inconsistent names, shapes, steps, times, box or lengths; reads no data."""
    arrays = {"x": t.x, "v": t.v, "steps": t.steps, "times": t.times}
    optional = {"box": t.box, "lengths": t.lengths, "observed": t.observed, "ids": t.ids}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    attributes = argument("attributes", t.attributes, dict[Any, Any])
    changing = argument("frame_attributes", t.frame_attributes, dict[Any, Any])
    names = [*attributes, *changing]
    if len(names) > MOST_ATTRIBUTES:
        raise InputError(f"attributes: expected at most {MOST_ATTRIBUTES}, found {len(names)}.")
    for name in names:
        if check_name(name, "attributes") in RESERVED:
            raise InputError(f"attributes: {name!r} cannot be the name of one.")
        if names.count(name) > 1:
            raise InputError(f"{name}: is an attribute of nodes and one of frames; rename one.")
    arrays |= attributes | changing
    kinds = {"steps": "iu", "lengths": "iu", "ids": "i", "observed": "b"}
    for name, array in arrays.items():
        what = getattr(array, "dtype", np.dtype("f8") if hasattr(array, "shape") else type(array))
        kind = getattr(what, "kind", None)  # (a tensor's type has none)
        if kind not in tuple(kinds.get(name, "iufb")):
            numbers = "booleans" if name == "observed" else "real numbers"
            raise InputError(f"{name}: expected a NumPy array of {numbers}, found {what}.")
    if len(t.x.shape) != 4 or 0 in t.x.shape[1:]:
        raise InputError(f"x: expected shape (num, T, N, n), none of them 0, found {t.x.shape}.")
    num, T, N, n = t.x.shape
    if tuple(t.v.shape) != tuple(t.x.shape):
        raise InputError(f"v: expected the shape of x, {t.x.shape}, found {t.v.shape}.")
    check_times(t.steps, t.times, T)
    if t.box is not None:
        check_box(t.box, n)
    if t.lengths is not None and (
        t.lengths.shape != (num,)
        or t.lengths.dtype.kind != "i"
        or ((t.lengths < 1) | (t.lengths > T)).any()
    ):
        raise InputError(
            f"lengths: expected {num} numbers of frames from 1 to {T}, found {preview(t.lengths)}."
        )
    per_frame = {"observed": t.observed, "ids": t.ids, **t.frame_attributes}
    for name, values in per_frame.items():
        if values is not None and tuple(values.shape) != (num, T, N):
            raise InputError(f"{name}: expected shape {(num, T, N)}, found {values.shape}.")
    if t.ids is not None and t.observed is None:
        raise InputError("ids: give as well where the nodes were observed.")
    if t.ids is not None and t.attributes:
        raise InputError(
            f"{next(iter(t.attributes))}: is an attribute of slots, which nodes have one after the "
            "other; give frame_attributes, a number for each slot and frame."
        )
    for name, constant in t.attributes.items():
        if tuple(constant.shape) not in ((num, N), (num, N, N)):
            raise InputError(
                f"{name}: expected shape {(num, N)} or {(num, N, N)}, found {constant.shape}."
            )
    for problem in _problems(argument("meta", t.meta, dict[Any, Any]), N, n):
        raise InputError(f"meta: {problem}.")


def check_times(steps: NDArray[Any], times: NDArray[Any], T: int) -> None:
    """Reject steps and times that do not distinguish T frames, also in single precision."""
    for name, value in (("steps", steps), ("times", times)):
        if value.shape != (T,) or not np.isfinite(value).all() or not (np.diff(value) > 0).all():
            raise InputError(f"{name}: expected {T} increasing numbers, found {preview(value)}.")
    gaps = np.diff(times)
    if not ((gaps >= SHORTEST) & (gaps <= FLOAT32_MAX)).all() or np.abs(times).max() > FLOAT32_MAX:
        raise InputError(
            f"times: {preview(times)} are too large or too close together for single precision, in "
            "which models compute; use another unit."
        )


def check_box(box: NDArray[Any], n: int) -> None:
    """Reject a box that is not n finite cell vectors spanning a volume."""
    if box.shape != (n, n):
        raise InputError(
            f"box: expected {n} edge lengths or {n} cell vectors, found shape {box.shape}."
        )
    if not (np.abs(box) <= FLOAT32_MAX).all():
        raise InputError(f"box: expected finite lengths, found {preview(box)}.")
    with np.errstate(all="ignore"):
        volume = np.linalg.det(box)
    if volume == 0 or not np.isfinite(volume):
        raise InputError(f"box: expected a cell with a volume, found {preview(box)}.")


def preview(values: NDArray[Any]) -> str:
    """The first few numbers of an array, for an error message."""
    flat = values.ravel()
    if flat.size < 7:
        return f"[{', '.join(f'{v:g}' for v in flat)}]"
    return f"[{flat[0]:g}, {flat[1]:g}, {flat[2]:g}, ..., {flat[-1]:g}]"


_TEXTS = ("velocities", "system", "scheme", "source", "length_unit", "time_unit")


def _problems(meta: dict[str, Any], nodes: int, dims: int) -> Iterator[str]:
    """Invalid entries of ``meta`` among those that have a meaning; all others are free."""
    for key in meta:
        if not isinstance(key, str):
            yield f"expected names, found {shortened(key)}"
    for key in _TEXTS:
        if not isinstance(meta.get(key), str | None):
            yield f"{key}: expected a text, found {shortened(meta[key])}"
    for key in ("recordings", "splits", "node_names", "notes"):
        named = meta.get(key)
        if named is not None and not (
            isinstance(named, list) and all(isinstance(name, str) for name in named)
        ):
            yield f"{key}: expected a list of texts, found {shortened(named)}"
    if meta.get("up") is not None:
        up = as_floats("meta: up", meta["up"])
        if up.shape != (dims,) or not np.isfinite(up).all() or not up.any():
            yield f"up: expected a direction of {dims} numbers, found {shortened(meta['up'])}"
    if meta.get("edges") not in (None, []):
        edges = as_integers("meta: edges", meta["edges"])
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.min() < 0 or edges.max() >= nodes:
            yield f"edges: expected pairs of nodes from 0 to {nodes - 1}"
