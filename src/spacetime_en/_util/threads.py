"""One parallel region around many operators, each of which runs on one thread.

PyTorch splits every operator among its threads and waits for the last of them. With thousands of
small operators this means thousands of waits, each of milliseconds on a busy machine, where a
thread may not get its core. Here threads take pieces of the work, run all operators of a piece by
themselves, and synchronise only once, at the end.
"""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def share(pieces: Sequence[T], work: Callable[[Iterator[T]], None]) -> None:
    """Share pieces of work among as many threads as PyTorch uses.

    Which thread gets which piece depends on timing; the result must not, see :class:`InOrder`. With
    one thread, or one piece, everything runs in the caller's thread.

    Args:
        pieces: the pieces of work.
        work: called once on each thread, with an iterator over the pieces that it gets.
    """
    threads, remaining = torch.get_num_threads(), deque(pieces)
    if min(threads, len(remaining)) < 2 or not _threads_are_possible():
        work(_take(remaining))
        return
    pool = _pool(threads, _flushes_denormals())
    # In inference mode, tensors of a caller in that mode are writable, too.
    in_mode = torch.inference_mode()(work)
    running = [pool.submit(in_mode, _take(remaining)) for _ in pieces[:threads]]
    try:
        wait(running, return_when=FIRST_EXCEPTION)
    finally:
        # After an error or Ctrl-C no new piece starts, and all are finished when we return.
        remaining.clear()
        wait(running)
    for done in running:
        done.result()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch with one thread: for small models, and for processes that share a machine.

    Operators outside of :func:`share` still wait for their threads: on busy cores two threads are
    slower than one, and several trainings run fastest with one core each.
    """
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


class InOrder(Generic[T]):
    """Passes the results of the pieces to `take` one by one and in order, whichever is ready first.

    Their sums are then bit-identical in every run, with any number of threads.
    """

    def __init__(self, take: Callable[[T], None]) -> None:
        self.take = take
        self.ready: dict[int, T] = {}
        self.next = 0
        self.lock = threading.Lock()

    def put(self, number: int, result: T) -> None:
        """Give the result of the piece with this number, counted from 0."""
        with self.lock:
            self.ready[number] = result
            while self.next in self.ready:
                self.take(self.ready.pop(self.next))
                self.next += 1


def _take(remaining: deque[T]) -> Iterator[T]:
    with contextlib.suppress(IndexError):
        while True:
            yield remaining.popleft()


def _threads_are_possible() -> bool:
    """False if PyTorch cannot set the number for each thread, or at interpreter shutdown."""
    return torch.backends.openmp.is_available() and threading.main_thread().is_alive()


def _flushes_denormals() -> bool:
    """Whether this thread flushes denormal numbers to zero (``torch.set_flush_denormal``)."""
    return sys.float_info.min * sys.float_info.epsilon == 0


_starting = threading.Lock()


@cache
def _pool(threads: int, flush_denormal: bool) -> ThreadPoolExecutor:
    """A pool of threads that is kept for the next call.

    Threads that start later inherit the number of threads set last, in any thread: once all
    threads of the pool have set theirs to one, another thread restores the previous number.
    """
    with _starting, ThreadPoolExecutor(1) as outside:
        number = outside.submit(torch.get_num_threads).result()
        pool = ThreadPoolExecutor(threads, "spacetime", _start, (flush_denormal,))
        all_started = threading.Barrier(threads)
        wait([pool.submit(all_started.wait, 60) for _ in range(threads)])
        outside.submit(torch.set_num_threads, number).result()
    return pool


def _start(flush_denormal: bool) -> None:
    torch.get_num_threads()  # (the first call in a thread inherits the number of the others)
    torch.set_num_threads(1)
    torch.set_flush_denormal(flush_denormal)


def _forked() -> None:
    """Reset: a forked process has none of the threads, and may hold a lock for ever."""
    global _starting
    _starting = threading.Lock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
