"""A progress bar for long work, and silence from other packages' loggers."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeRemainingColumn,
)

from spacetime_en._util.terminal import Terminal, text_column


def bars(console: Terminal, *columns: ProgressColumn) -> Progress:
    """Progress bars that are removed when done, and drawn only on a terminal."""
    disable = not console.is_terminal
    name = text_column("{task.description}")
    return Progress(name, *columns, console=console, transient=True, disable=disable)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, removed when done, and drawn only on a terminal.

    Yields: a function to call with the number of items finished since the last call.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with bars(Terminal(stderr=True), *columns) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def silenced(*loggers: str) -> Iterator[None]:
    """Let these loggers log only errors."""
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in loggers}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
