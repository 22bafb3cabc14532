"""Checks of JSON, YAML and arguments against types with bounds; errors are one sentence.

Every file of settings or facts is read here, so that no other module meets a wrong type, a number
out of range, an endless file or a name that is a path. The schema of each file is a dataclass
next to the code that writes it; :func:`typed` checks a value against it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    BinaryIO,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
import yaml

from spacetime_en._util.errors import InputError, printable

T = TypeVar("T")
P = ParamSpec("P")
MOST_BYTES = 64 << 20  # for a text file; the facts of a million frames take half of that
MOST_YAML = 1 << 18  # characters; YAML is slow to parse
LONGEST_NAME = 64

# Integers up to 2^53 are exact in float64, which many JSON readers use.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_MAX = sys.float_info.max  # so that infinity and NaN are rejected
FLOAT32_MAX = float(np.finfo(np.float32).max)  # models compute in single precision
Finite = Annotated[float, msgspec.Meta(ge=-_MAX, le=_MAX)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0.0, le=FLOAT32_MAX)]
# The smallest normal number. gt=0 would not do: msgspec compares with the smallest denormal number,
# which a CPU that flushes denormals (flush_denormal) takes for 0, so 0 would pass.
LEAST = sys.float_info.min
PositiveFloat = Annotated[float, msgspec.Meta(ge=LEAST, le=FLOAT32_MAX)]
UnitInterval = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_NO_BOUNDS = msgspec.Meta()


def read_text(path: Path, most: int = MOST_BYTES, *, inside: bool = False) -> str:
    """Read a UTF-8 file of at most `most` bytes; for `inside` see :func:`open_regular`."""
    with open_regular(path, inside=inside) as file:
        length = os.fstat(file.fileno()).st_size or most  # (kernel files report 0)
        content = file.read(min(length, most) + 1)
    if len(content) > most:
        raise InputError(f"{path}: is larger than {most >> 20} MB; expected a short text file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 ({error.reason}).") from None


def open_regular(path: Path, *, inside: bool = False) -> BinaryIO:
    """Open a file for reading; pipes and devices, which may never end, are rejected.

    With `inside`, the user named a folder containing the file, and a link is rejected: it may point
    to a file that the user never named.
    """
    if inside:
        check_no_link(path)
        if not path.exists():
            raise InputError(f"{path}: is missing.")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{path}: is {what}; expected a file.")
    return path.open("rb")


def check_no_link(path: Path) -> None:
    """Reject a link inside a folder from someone else: it may point anywhere."""
    if path.is_symlink():
        raise InputError(
            f"{path}: is a link, and links inside a folder are not followed; put the file itself "
            "there."
        )


def read_json(path: Path, kind: type[T]) -> T:
    """Read a JSON file as a `kind`, a dataclass or any other type."""
    return cast("T", typed(parse_json(read_text(path), str(path)), kind, str(path)))


def parse_json(text: str, where: str) -> Any:
    """Parse JSON, rejecting duplicate keys; `where` begins the error message."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(entries := dict(pairs)) < len(pairs):
            [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise ValueError(f"{twice!r:.60} stands twice")
        return entries

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{where}: is not valid JSON ({what}).") from None


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML of plain values, rejecting duplicate keys and aliases."""
    if len(text) > MOST_YAML:
        raise InputError(f"{where}: has {len(text):,} characters; expected {MOST_YAML:,} at most.")
    try:
        return yaml.load(text, Loader=_PlainLoader)  # (a safe one)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{where}: is not valid YAML ({' '.join(what.split())}).") from None


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Rejects duplicate keys, and aliases, with which a few lines can expand to billions."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"aliases are not read, line {mark.line + 1} has one")
        return super().compose_node(parent, index)

    def construct_number(self, node: Any) -> float:
        if ":" in node.value:  # YAML reads 1:30 as 90
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"{node.value:.60} in line {line} may be a time; put it in quotes")
        is_int = node.tag.endswith(":int")
        number: float = (self.construct_yaml_int if is_int else self.construct_yaml_float)(node)
        return number

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"{key!r:.60} stands twice, again in line {line}")
            if isinstance(key, Hashable):
                seen.add(key)
        return dict(super().construct_mapping(node, deep))


for _tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
    _PlainLoader.add_constructor(_tag, _PlainLoader.construct_number)


def typed(value: Any, kind: Any, where: str, *, strict: bool = True) -> Any:
    """Convert `value` to a `kind`: a dataclass, a list of numbers, ...

    Args:
        value: a value of plain Python types, as in JSON and YAML.
        kind: the expected type, with bounds by :class:`msgspec.Meta`.
        where: used at the start of the error message if the value does not fit.
        strict: whether ``"3"`` is rejected where 3 is expected.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        what, _, path = str(error).replace("`", "").partition(" - at ")
        place = path.removeprefix("key in ").removeprefix("$").lstrip(".")
        at = f"{where}: {place}" if place else where
        raise InputError(f"{at}: {_in_words(what, path, value, kind)}.") from None


def check_format(found: Any, newest: int, where: str) -> None:
    """Reject a file with a format number newer than this version knows."""
    if type(found) is not int or not 1 <= found <= newest:
        raise InputError(
            f"{where}: its format is {shortened(found)}, this version of spacetime-en reads "
            f"{'1' if newest == 1 else f'1 to {newest}'}; was it written by a newer one?"
        )


def arguments(values: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of a call to the types in its signature."""
    return {name: argument(name, value, hints.get(name, Any)) for name, value in values.items()}


def argument(name: str, value: Any, kind: Any) -> Any:
    """Convert one argument to a `kind`.

    Plain values are checked against types and bounds, other objects against their class. NumPy
    numbers are accepted as Python's, and arrays where a list is expected.
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    classes = tuple(get_origin(one) or one for one in kinds if _is_class(one))
    with suppress(TypeError):  # (some protocols do not support isinstance)
        if Any in kinds or (classes and isinstance(value, classes)):
            return value
        plain = [one for one in kinds if not _is_class(one)]
        if isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, list | tuple | range):
            value = [one.item() if isinstance(one, np.generic) else one for one in value]
        elif hasattr(value, "tolist") and any(
            get_origin(k) in (list, tuple, Sequence) for k in plain
        ):
            with suppress(Exception):  # (e.g. a tensor without values)
                value = value.tolist()
        if not plain or not isinstance(value, _PLAIN):
            words = " or ".join(word for one in kinds for word in _words(one, _NO_BOUNDS))
            is_plain = isinstance(value, _PLAIN)
            found = shortened(value) if is_plain else f"a {type(value).__name__}"
            raise InputError(f"{name}: expected {words}, found {found}.")
        return typed(value, Union[tuple(plain)], name)  # noqa: UP007
    return value


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function to check its arguments against their types when it is called.

    ``*args`` and ``**settings`` are left to the function.
    """
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        return get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        bound = signature.bind(*args, **options)
        for name, value in bound.arguments.items():
            several = signature.parameters[name].kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            )
            if not several:
                bound.arguments[name] = argument(name, value, hints().get(name, Any))
        return function(*bound.args, **bound.kwargs)

    return call


_PLAIN = (int, float, str, bool, NoneType, list, dict, tuple, Sequence, Mapping)


def _is_class(kind: Any) -> bool:
    """Whether a type is a class other than those of plain values."""
    base = get_origin(kind) or kind
    return isinstance(base, type) and base not in (*_PLAIN, Any, Annotated)


# --- words ----------------------------------------------------------------------------------------


def _in_words(what: str, path: str, value: Any, kind: Any) -> str:
    """Rephrase msgspec's message `what` on the entry at `path`."""
    if what.startswith("Object missing required field "):
        return f"the entry {what.split()[-1]} is missing"
    if not what.startswith(("Expected ", "Invalid ", "Object ", "Integer ", "Number ")):
        return what  # from a check of the class itself
    got = what.partition(", got ")[2] or "another"
    found = {"array": "a list", "object": "named entries", "str": "text"}.get(got, got)
    try:
        for key, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
            kind = _inside(kind, key or index)
            value = value[int(index) if index.isdigit() else key or index]
        found = shortened(value)
    except (LookupError, TypeError):  # (for a dict whose keys are not names, msgspec gives none)
        pass
    words = " or ".join(word for part, bounds in _parts(kind) for word in _words(part, bounds))
    limit = re.search(r" (<=?) (\S+)", what)  # present only if this limit was exceeded
    if limit and (limit[2] == str(_MAX) or found == "inf"):
        words = "a finite number"
    elif limit and "to 1" not in words:
        most = limit[2].removesuffix(".0")
        most = f"{FLOAT32_MAX:.2g}" if most == str(FLOAT32_MAX) else most
        words += f", {'at most' if limit[1] == '<=' else 'below'} {most}"
    return f"expected {words}, found {found}"


def _parts(kind: Any, bounds: msgspec.Meta = _NO_BOUNDS) -> Iterator[tuple[Any, msgspec.Meta]]:
    """The types of a union with their bounds, or the type itself if it is not a union."""
    if get_origin(kind) is Annotated:
        metas = (m for m in get_args(kind)[1:] if isinstance(m, msgspec.Meta))
        yield from _parts(get_args(kind)[0], next(metas, bounds))
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _parts(one)
    else:
        yield kind, bounds


_WORDS: dict[Any, str] = {
    str: "text",
    os.PathLike: "a path",
    Callable: "a function",
    bool: "true or false",
    None: "None",
    NoneType: "None",
    dict: "named entries",
}


def _words(kind: Any, bounds: msgspec.Meta) -> list[str]:
    """A type as worded in an error message."""
    if get_origin(kind) is Literal:
        return [repr(choice) for choice in get_args(kind)]
    if kind is int:
        if bounds.ge is None:
            return ["a whole number"]
        least = f"a whole number, at least {bounds.ge}"
        return ["a positive whole number" if bounds.ge == 1 else least]
    if kind is float:
        if (bounds.ge, bounds.le) == (0, 1):
            return ["a number from 0 to 1"]
        if bounds.ge == LEAST:
            return ["a positive number"]
        return ["a number, at least 0" if bounds.ge == 0 else "a number"]
    base = dict if dataclasses.is_dataclass(kind) else get_origin(kind) or kind
    if base in _WORDS:
        return [_WORDS[base]]
    if get_origin(kind) is tuple and ... not in get_args(kind):
        return [f"a list of {len(get_args(kind))}"]
    return ["a list" if get_origin(kind) else getattr(kind, "__name__", str(kind))]


def _inside(kind: Any, key: str) -> Any:
    """The type of an entry of a dataclass, a list or a dict."""
    for part, _ in _parts(kind):
        if dataclasses.is_dataclass(part):
            return get_type_hints(part, include_extras=True).get(key, Any)
        if inner := get_args(part):
            return inner[0 if key.isdigit() else -1]
    return Any


# --- names ----------------------------------------------------------------------------------------


def check_name(name: Any, where: str) -> str:
    """Check a name that may become a file name: it must be an identifier, and so no path."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > LONGEST_NAME:
        raise InputError(
            f"{where}: {shortened(name)} cannot be a name; expected letters, digits and _, at most "
            f"{LONGEST_NAME}."
        )
    return name


def shortened(value: Any, most: int = 60) -> str:
    """A value for an error message: on one line, without control characters, shortened."""
    try:
        text = re.sub(r"\s+", " ", ascii(value) if not str(value).isprintable() else repr(value))
    except Exception:  # (integers with thousands of digits, or any __repr__)
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def reason(error: BaseException, most: int = 160) -> str:
    """The message of another package's error, on one line, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = printable(text).rstrip(".")
    return text if len(text) <= most else f"{text[: most - 3]}..."
