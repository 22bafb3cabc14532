"""Tables: short numbers that keep their magnitude, and one line of Markdown per row."""

import pytest

from spacetime_en.compare.table import Cell, Table, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.21456, "3.21"),
        (0.0123, "0.0123"),
        (16.2, "16.2"),
        (1.2e-7, "1.2e-07"),
        (0.0, "0"),
        (1234.5, "1,234"),
        (123456.0, "123,456"),
        (4.2e30, "4.2e+30"),
        (None, "–"),
    ],
)
def test_numbers_are_short_and_never_lose_their_size(value, text):
    assert number(value) == text


def test_markdown_has_a_line_for_every_row_and_the_notes_below():
    table = Table("t", "T", ["error"], [("set", [Cell(4.0, "4")]), ("mlp", [Cell()])], ["A note."])
    assert (
        table.to_markdown() == "|  | error |\n| --- | --: |\n| set | 4 |\n| mlp | – |\n\nA note.\n"
    )
