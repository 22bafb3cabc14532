"""One parallel region around many operators: threads on which PyTorch has one thread each.

PyTorch cuts every operator into as many parts as it has threads, and waits for the last of them.
Thousands of small operators wait thousands of times, and on a busy machine, where a part stands
still while others have its core, for milliseconds each time. Here threads take pieces of the work,
run all operators of a piece alone, and wait for each other once, at the end.
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
    """Call `work` on as many threads as PyTorch has here, with pieces as long as there are any.

    Which thread gets which piece depends on time; what is made of them must not, see
    :class:`InOrder`. With one thread, or one piece, all happens in the caller's.
    """
    threads, left = torch.get_num_threads(), deque(pieces)
    if min(threads, len(left)) < 2 or not _threads_are_possible():
        work(_taken(left))
        return
    crew = _crew(threads, _flushes_denormals())
    running = [crew.submit(_alone, work, _taken(left)) for _ in pieces[:threads]]
    try:
        wait(running, return_when=FIRST_EXCEPTION)
    finally:
        left.clear()  # after an error or Ctrl-C: no new pieces, and none goes on behind us
        wait(running)
    for done in running:
        done.result()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch with one thread: for small models, and processes that share a machine.

    Operators outside of :func:`share` still wait for each other: on busy cores two threads take
    longer than one, and where several trainings run, each is best off with a core to itself.
    """
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


class InOrder(Generic[T]):
    """Hands on what was made of the pieces in their order, whichever is ready first.

    Sums of it have the same bits in every run, with any number of threads.
    """

    def __init__(self, take: Callable[[T], None]) -> None:
        self.take = take
        self.ready: dict[int, T] = {}
        self.next = 0
        self.lock = threading.Lock()

    def put(self, number: int, made: T) -> None:
        """What was made of the piece with this number, counted from 0."""
        with self.lock:
            self.ready[number] = made
            while self.next in self.ready:
                self.take(self.ready.pop(self.next))
                self.next += 1


def _taken(left: deque[T]) -> Iterator[T]:
    with contextlib.suppress(IndexError):
        while True:
            yield left.popleft()


def _alone(work: Callable[[Iterator[T]], None], pieces: Iterator[T]) -> None:
    """In inference mode one may write into all tensors, those of a caller in that mode too."""
    with torch.inference_mode():
        work(pieces)


def _threads_are_possible() -> bool:
    """Not if PyTorch has one number of threads for all, nor when the interpreter is ending."""
    return torch.backends.openmp.is_available() and threading.main_thread().is_alive()


def _flushes_denormals() -> bool:
    """Whether numbers below 1e-308 count as zero (``torch.set_flush_denormal``), in this thread."""
    return sys.float_info.min * sys.float_info.epsilon == 0


_starting = threading.Lock()


@cache
def _crew(threads: int, flush_denormal: bool) -> ThreadPoolExecutor:
    """Threads that stay for the next time; they sleep while there is nothing to do.

    PyTorch keeps the number of threads that was set last for threads that come later, which are not
    all ours: when all of these have set their own, a bystander sets back what was there before.
    """
    with _starting, ThreadPoolExecutor(1) as bystander:
        number = bystander.submit(torch.get_num_threads).result()
        crew = ThreadPoolExecutor(threads, "spacetime", _start, (flush_denormal,))
        all_here = threading.Barrier(threads)
        wait([crew.submit(all_here.wait, 60) for _ in range(threads)])
        bystander.submit(torch.set_num_threads, number).result()
    return crew


def _start(flush_denormal: bool) -> None:
    torch.get_num_threads()  # (the first call in a thread takes over the number of the others)
    torch.set_num_threads(1)
    torch.set_flush_denormal(flush_denormal)


def _forked() -> None:
    """A forked process has none of the threads, and may have a lock that nobody holds."""
    global _starting
    _starting = threading.Lock()
    _crew.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
