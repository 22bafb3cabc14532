"""JSON and YAML that somebody wrote: typed and bounded values, or one sentence.

Whatever is read from a settings file or a file of facts passes here, so that no other module
meets a wrong type, a number that is out of range, a file without end or a name that is a path. The
shape of each file is a dataclass beside the code that writes it; :func:`typed` holds a value
against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, cast

import msgspec
import yaml

from spacetime_en.errors import InputError

T = TypeVar("T")
MOST_BYTES = 64 << 20  # of a text file; the facts of a million frames take half of it
LONGEST_NAME = 64

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # whole numbers that every reader holds
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


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
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"{twice!r:.60} stands twice")
        return entries

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{where}: is not valid JSON ({what}).") from None


def parse_yaml(text: str, where: str) -> Any:
    """YAML of plain values, in which every key stands once, without anchors and aliases."""
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
        what, _, place = str(error).replace("`", "").partition(" - at ")
        place = place.removeprefix("$").lstrip(".")
        what = what.replace(", got ", ", found ") or "a value out of range"
        at = f"{where}: {place}" if place else where
        raise InputError(f"{at}: {what[:1].lower()}{what[1:]}.") from None


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
    text = re.sub(r"\s+", " ", ascii(value) if not str(value).isprintable() else repr(value))
    return text if len(text) <= most else f"{text[: most - 3]}..."
