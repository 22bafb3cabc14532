"""Tables of results: cells with a number to sort by, as Markdown and for the HTML report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A number to sort by, or None, and its printed form."""

    value: float | None = None
    text: str = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A short form that never rounds to 0: 3.21, 0.0123, 1.2e-07, 12,345."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        text = f"{value:.{digits}g}"
        return text if "e" not in text else f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.1e}"


Row = tuple[str, list[Cell]]


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Args:
        name, title: of the table.
        columns: the column headings.
        rows: the label and the cells of each row.
        notes: paragraphs below the table.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def to_markdown(self) -> str:
        """The table and its notes in Markdown."""
        lines = [" | ".join(["", *self.columns]), " | ".join(["---", *["--:"] * len(self.columns)])]
        lines += [" | ".join([label, *(c.text for c in cells)]) for label, cells in self.rows]
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return "\n".join(f"| {line} |" for line in lines) + "\n" + notes
