"""Signals that ask a process to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Ctrl-C; the end of a job; a lost connection; and, by convention, what batch systems send some
# time before they end a job. Windows has only the first two.
STOP_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)
)
Handler = Callable[[int, FrameType | None], object]


def handle_stop_signals(handler: Handler) -> None:
    """Call `handler` for every signal that asks to stop.

    Only the main thread can set handlers; in others nothing happens.
    """
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            if not _is_under_nohup(number):
                signal.signal(number, handler)


@contextmanager
def stop_signals(handler: Handler) -> Iterator[None]:
    """:func:`handle_stop_signals` inside the block; the previous handlers are restored after it."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if is_main}
    try:
        handle_stop_signals(handler)
        yield
    finally:
        for number, handled in before.items():
            if handled is not None:  # None: a handler that is not Python's
                signal.signal(number, handled)


def _is_under_nohup(number: int) -> bool:
    return number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN
