"""What a user sees of long work: a progress bar, and not what other packages say of themselves."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TimeRemainingColumn,
)

from spacetime_en._util.terminal import Terminal, text_column


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, gone when done, and not drawn if nobody watches.

    Yields: a function to call with the number of things finished since the last call.
    """
    columns = (text_column("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Terminal(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def silenced(*loggers: str) -> Iterator[None]:
    """Let these loggers of other packages speak of errors only."""
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in loggers}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
