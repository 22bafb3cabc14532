"""JSON and YAML that somebody wrote: typed and bounded values, or one sentence.

Whatever is read from a settings file or a file of facts passes here, so that no other module
meets a wrong type, a number that is out of range, a file without end or a name that is a path. The
shape of each file is a dataclass beside the code that writes it; :func:`typed` holds a value
against it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    BinaryIO,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import yaml

from spacetime_en.errors import InputError

T = TypeVar("T")
MOST_BYTES = 64 << 20  # of a text file; the facts of a million frames take half of it
MOST_YAML = 1 << 18  # characters, which are read slowly
LONGEST_NAME = 64

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # whole numbers that every reader holds
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_MAX = sys.float_info.max  # and no more: neither infinity nor NaN
Finite = Annotated[float, msgspec.Meta(ge=-_MAX, le=_MAX)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0, le=_MAX)]
Scale = Annotated[float, msgspec.Meta(gt=0.0, le=_MAX)]  # a length, a time, a rate
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

# What msgspec calls types and bounds, in words.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "named entries",
}
_BOUNDS = {
    "a whole number >= 1": "a positive whole number",
    "a number > 0.0": "a positive number",
    f"a number <= {_MAX}": "a finite number",
    f"a number >= {-_MAX}": "a finite number",
}


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A text file in UTF-8 of at most so many bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path}: is larger than {most >> 20} MB; expected a short text file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 ({error.reason}).") from None


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading; pipes and devices, which may never end, are refused."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{path}: is {what}; expected a file.")
    return path.open("rb")


def read_json(path: Path, kind: type[T]) -> T:
    """A JSON file of the shape of `kind`, which is a dataclass or any other type."""
    return cast("T", typed(parse_json(read_text(path), str(path)), kind, str(path)))


def parse_json(text: str, where: str) -> Any:
    """JSON in which every key stands once; `where` begins the sentence if it is not."""

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
    """YAML of plain values, in which every key stands once, without anchors and aliases."""
    if len(text) > MOST_YAML:
        raise InputError(f"{where}: has {len(text):,} characters; expected {MOST_YAML:,} at most.")
    try:
        return yaml.load(text, Loader=_PlainLoader)  # (a safe one)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{where}: is not valid YAML ({' '.join(what.split())}).") from None


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses aliases, with which a few lines stand for billions, and keys that stand twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"aliases are not read, line {mark.line + 1} has one")
        return super().compose_node(parent, index)

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


def typed(value: Any, kind: Any, where: str, *, strict: bool = True) -> Any:
    """`value` as a `kind`: a dataclass, a list of numbers, ...; its types are not negotiable.

    Args:
        value: of plain Python types, as JSON and YAML have them.
        kind: the type expected, with the bounds of its :class:`msgspec.Meta`.
        where: begins the sentence if the value does not fit.
        strict: whether ``"3"`` is refused where 3 is expected.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        what, _, path = str(error).replace("`", "").partition(" - at ")
        place = path.removeprefix("$").lstrip(".")
        at = f"{where}: {place}" if place else where
        raise InputError(f"{at}: {_in_words(what, path, value, kind)}.") from None


def _in_words(what: str, path: str, value: Any, kind: Any) -> str:
    """What msgspec says of the entry at `path`, with the value that it found there."""
    try:
        for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            value = value[key or int(index)]
            kind = _inside(kind, key or int(index))
        found = shortened(value) if "..." not in path else ""
    except (LookupError, TypeError):
        found = ""
    if choices := [repr(choice) for part in _parts(kind) for choice in _choices(part)]:
        return f"expected {' or '.join(choices)}, found {found or 'another'}"
    expected, _, got = what.partition(", got ")
    found = found or _WORDS.get(got, got) or "another"
    if what.startswith("Object missing required field "):
        return f"the entry {what.split()[-1]} is missing"
    if not expected.startswith("Expected "):
        return f"expected a number within range, found {found}"
    types, space, bound = expected.removeprefix("Expected ").replace(" | ", "|").partition(" ")
    words = " or ".join(_WORDS.get(name, name) for name in types.split("|")) + space + bound
    return f"expected {_BOUNDS.get(words, words)}, found {found}"


def _parts(kind: Any) -> tuple[Any, ...]:
    """The types that a union allows; of any other type, itself; without their bounds."""
    if get_origin(kind) is Annotated:
        return _parts(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(part for one in get_args(kind) for part in _parts(one))
    return (kind,)


def _inside(kind: Any, key: str | int) -> Any:
    """The type of an entry of a dataclass or a list."""
    for part in _parts(kind):
        if dataclasses.is_dataclass(part) and isinstance(key, str):
            return get_type_hints(part, include_extras=True).get(key, Any)
        if isinstance(key, int) and get_args(part):
            return get_args(part)[0]
    return Any


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def check_name(name: Any, where: str) -> str:
    """A name from a file that may become the name of a file: a plain identifier, and no path."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > LONGEST_NAME:
        raise InputError(
            f"{where}: {shortened(name)} cannot be a name; expected letters, digits and _, at most "
            f"{LONGEST_NAME}."
        )
    return name


def shortened(value: Any, most: int = 60) -> str:
    """A value as an error sentence shows it: on one line, without control characters, not long."""
    try:
        text = re.sub(r"\s+", " ", ascii(value) if not str(value).isprintable() else repr(value))
    except (ValueError, RecursionError):  # (whole numbers of thousands of digits)
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."
