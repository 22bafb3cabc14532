"""JSON and YAML input is typed and bounded, or rejected in one sentence."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import (
    Count,
    PositiveFloat,
    PositiveInt,
    check_name,
    parse_json,
    parse_yaml,
    read_json,
    read_text,
    shortened,
    typed,
)


@dataclass
class Facts:
    num: Count
    times: list[float]
    name: str | None = None
    kind: Literal["a", "b"] | None = None
    size: dict[str, PositiveInt] | None = None
    scale: PositiveFloat = 1.0


def refused(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


def test_typed_values_come_back_as_their_types() -> None:
    facts = typed({"num": 3, "times": [0, 0.5]}, Facts, "f.json")
    assert facts == Facts(3, [0.0, 0.5])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"num": "3", "times": []}, "f.json: num: expected a whole number, at least 0, found '3'."),
        ({"num": 1, "times": [0, None]}, "f.json: times[1]: expected a number, found None."),
        ({"num": -1, "times": []}, "num: expected a whole number, at least 0, found -1."),
        ({"num": 10**30, "times": []}, "num: expected a whole number, at least 0, at most 9007"),
        ({"num": 16**5000, "times": []}, "found a int that is too long to show."),
        ({"num": 1.5, "times": []}, "num: expected a whole number, at least 0, found 1.5."),
        ({"times": []}, "f.json: the entry num is missing."),
        ({"num": 1, "times": [], "kind": "c"}, "kind: expected 'a' or 'b' or None, found 'c'."),
        ({"num": 1, "times": [], "kind": 5}, "kind: expected 'a' or 'b' or None, found 5."),
        (
            {"num": 1, "times": [], "size": {"a": "b"}},
            "size[...]: expected a positive whole",
        ),
        ({"num": 1, "times": [], "size": {"a": 0}}, "expected a positive whole number, found"),
        ({"num": 1, "times": [], "scale": float("nan")}, "scale: expected a positive number, fo"),
        ({"num": 1, "times": [], "scale": 1e999}, "scale: expected a finite number, found inf."),
        ([], "f.json: expected named entries, found []."),
        (None, "f.json: expected named entries, found None."),
    ],
)
def test_values_of_another_shape_are_refused_by_name(value: object, words: str) -> None:
    assert words in refused(typed, value, Facts, "f.json")


def test_words_are_numbers_only_where_that_is_allowed() -> None:
    assert typed("1e-3", float, "lr", strict=False) == 1e-3
    refused(typed, "1e-3", float, "lr")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "not valid JSON"),
    ],
)
def test_json_that_cannot_be_read(text: str, words: str) -> None:
    assert words in refused(parse_json, text, "f.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not valid YAML"),
        ("a: 1\nb: 2\na: 3", "'a' stands twice, again in line 3"),
        ("x: {a: 1, a: 2}", "stands twice"),
        ("a: 1\nb: 1:30", "1:30 in line 2 may be a time; put it in quotes"),
        ("a: 1:30.5", "may be a time"),
        ("a: &x [1]\nb: *x", "aliases are not read, line 2"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("a: 2026-99-99", "not valid YAML"),
        ("[" * 20_000, "nested too deeply"),
        ("# much\n" * 100_000, "has 700,000 characters; expected 262,144 at most"),
    ],
)
def test_yaml_that_cannot_be_read(text: str, words: str) -> None:
    assert words in refused(parse_yaml, text, "c.yaml")


@given(st.text())
def test_any_text_is_a_value_or_a_sentence(text: str) -> None:
    for parse in (parse_json, parse_yaml):
        try:
            parse(text, "here")
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_files_are_text_and_short(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused(read_text, path)
    path.write_text('{"num": 1, "times": []}')
    assert read_json(path, Facts) == Facts(1, [])
    assert "larger than" in refused(read_text, path, most=3)


def test_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refused(read_text, tmp_path / "pipe")
    assert "is a folder" in refused(read_text, tmp_path)


@pytest.mark.parametrize("name", ["../../victim", "a/b", "", "a b", "a" * 65, ".", "x.npy", 3])
def test_paths_are_no_names(name: object) -> None:
    assert "cannot be a name" in refused(check_name, name, "meta.json")


def test_names_are_identifiers() -> None:
    assert check_name("charge_2", "meta.json") == "charge_2"


def test_values_are_shown_on_one_short_line() -> None:
    assert shortened("a\nb") == r"'a\nb'"
    assert len(shortened("x" * 1000)) == 60
    assert "\x1b" not in shortened("\x1b[31m")


@pytest.mark.parametrize("flush", [False, True])
def test_zero_is_not_positive_even_where_the_smallest_numbers_are_zero(flush: bool) -> None:
    before = sys.float_info.min * sys.float_info.epsilon == 0
    torch.set_flush_denormal(flush)
    try:
        assert "expected a positive number, found 0" in refused(
            typed, 0.0, PositiveFloat, "length_scale"
        )
        assert typed(1e-30, PositiveFloat, "length_scale") == 1e-30
    finally:
        torch.set_flush_denormal(before)
