"""Print names literally and numbers in full, however narrow the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from spacetime_en._util.errors import printable


class Terminal(Console):
    """A console that interprets no markup: a name may contain ``[/x]`` or ``:smile:``."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        if self.width == 0:  # (COLUMNS=0 means that the width is unknown)
            self.width = 80

    @property
    def is_terminal(self) -> bool:
        """Whether lines may be redrawn; for Rich, FORCE_COLOR is enough, which notebooks set."""
        return super().is_terminal and self.file.isatty()

    def render_str(self, text: str, **options: Any) -> Text:
        """Render as Rich does, with control characters escaped."""
        return super().render_str(printable(text, keep="\n"), **options)

    def say(self, text: str, style: str | None = None) -> None:
        """Print text without wrapping it, so that names are never broken."""
        self.print(text, style=style, soft_wrap=True)

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
    ) -> None:
        """Print a table; if the terminal is too narrow, one line per cell.

        Args:
            head: the column headers; the first column holds the names of the rows.
            rows: the cells of each row.
            title: a title above the table.
        """
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=title)
        for place, name in enumerate(head):
            table.add_column(name, no_wrap=True, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        unlimited = self.options.update(max_width=1 << 16)
        if Measurement.get(self, unlimited, table).maximum <= self.width:
            self.print(table)
            return
        for above in filter(None, (title, head[0])):
            self.say(f"{above}:")
        for name, *values in rows:
            self.say(name or "-")
            for key, value in zip(head[1:], values, strict=True):
                if value:
                    self.say(f"  {' '.join(key.split())}: {value}")


def text_column(template: str) -> TextColumn:
    """A column of a progress bar that interprets no markup."""
    return TextColumn(template, markup=False)
