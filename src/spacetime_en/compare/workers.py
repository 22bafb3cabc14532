"""Carry out jobs in several processes, with one progress display."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from spacetime_en._util.errors import InputError, Interrupted, in_short
from spacetime_en._util.files import locked, refuse_foreign
from spacetime_en._util.machine import cores
from spacetime_en._util.signals import STOP_SIGNALS, stop_signals
from spacetime_en._util.threads import one_thread
from spacetime_en.compare.display import JobDisplay
from spacetime_en.compare.job import Job
from spacetime_en.compare.ray import carry_out_on_ray
from spacetime_en.compare.results import RESULTS

if TYPE_CHECKING:
    from spacetime_en.compare.claims import Claims

PRELOAD = "spacetime_en.compare.preload"  # a module, imported in workers only
PATIENCE = 60.0  # seconds for workers to write their checkpoints when stopped
LOOK = 5.0  # seconds between checks for results of other machines


@dataclass(frozen=True)
class Outcome:
    """The outcome of some jobs.

    Args:
        failed: an error message for every job that failed, by its name.
        seconds: processor time of the workers, including their imports.
    """

    failed: dict[str, str]
    seconds: float = 0.0


def carry_out_all(
    jobs: Sequence[Job],
    folder: Path,
    what: str,
    workers: int | None = None,
    claims: Claims | None = None,
    ray: bool = False,
) -> Outcome:
    """Carry out all jobs without a result; call it again to resume after an interruption.

    Args:
        jobs: in an order in which each comes after those that it needs.
        folder: of the results.
        what: the jobs are part of, such as "reproduction".
        workers: number of processes, one core (or GPU) each; None for one per core or GPU.
        claims: with which machines that share the folder agree on who does what; None: no other
            machine may work in it.
        ray: hand jobs out to a Ray cluster, all of whose machines see the folder.
    """
    check_workers(workers)
    refuse_foreign(folder, what, RESULTS)
    todo = [job for job in jobs if job.result(folder) is None]
    if not todo:
        return Outcome({})
    count = min(len(todo), workers or torch.cuda.device_count() or cores())
    with (
        # Two commands in one folder would train the same runs at once.
        locked(folder) if claims is None else nullcontext(),
        JobDisplay(len(jobs), len(jobs) - len(todo)) as display,
        stop_signals(signal.default_int_handler),  # all of them, like Ctrl-C
    ):
        (folder / RESULTS).mkdir(exist_ok=True)  # identifies the folder when resuming
        crew: list[_Worker] = []
        try:
            if ray:
                return Outcome(*carry_out_on_ray(todo, folder, display))
            crew += (_Worker.start(number, folder) for number in range(count))
            failed = _supervise(crew, todo, folder, display, claims)
            return Outcome(failed, sum(worker.seconds for worker in crew))
        except KeyboardInterrupt:
            raise Interrupted("stopped; the same command goes on from here") from None
        finally:
            for worker in crew:
                worker.stop()
            if claims is not None:
                claims.release()


def check_workers(workers: int | None) -> None:
    """Refuse zero processes, or more than there are cores."""
    most = os.cpu_count() or 1
    if workers is not None and not 0 < workers <= most:
        raise InputError(
            f"workers: expected 1 to {most}, the number of cores here, found {workers}."
        )


def _supervise(
    crew: list[_Worker],
    todo: Sequence[Job],
    folder: Path,
    display: JobDisplay,
    claims: Claims | None,
) -> dict[str, str]:
    """Hand out jobs whose requirements have ended, until none is left."""
    waiting, failed = list(todo), {}
    unfinished = {job.name for job in todo}
    while unfinished:
        if claims is not None:
            claims.beat()
            errors = claims.failures()
            for other in list(waiting):
                if other.result(folder) is not None:
                    said = "done elsewhere"
                elif other.name in errors:
                    failed[other.name] = errors[other.name]
                    said = f"failed elsewhere: {errors[other.name]}"
                else:
                    continue
                waiting.remove(other)
                unfinished.remove(other.name)
                display.done(None, other.label, said)
        for worker in (worker for worker in crew if worker.busy is None):
            if (job := _ready(waiting, unfinished, folder, claims)) is None:
                break  # (nor would another worker get one)
            waiting.remove(job)
            worker.give(job)
            display.at(worker.number, job.label, 0.0, "")
        by_pipe = {worker.pipe: worker for worker in crew if worker.busy is not None}
        for pipe in wait(list(by_pipe), None if claims is None else LOOK):
            worker = by_pipe[pipe]  # type: ignore[index]
            done = worker.busy
            assert done is not None
            try:
                kind, *rest = worker.hear()
            except _DiedError as died:  # only this job failed: the others need not wait for it
                kind, rest = "failed", [str(died), 0.0]
                worker.replace(folder)
            if kind == "at":
                display.at(worker.number, done.label, *rest)
                continue
            if kind == "stopped":
                raise KeyboardInterrupt
            if kind == "failed":
                failed[done.name] = rest[0]
            if claims is not None:
                claims.end(done.name, failed.get(done.name))
            worker.busy = None
            worker.seconds += rest[1]
            unfinished.remove(done.name)
            display.done(worker.number, done.label, rest[0])
    return failed


def _ready(
    waiting: Sequence[Job], unfinished: set[str], folder: Path, claims: Claims | None
) -> Job | None:
    """A job whose requirements have all ended, and that no other worker has claimed."""
    for job in waiting:
        if unfinished.intersection(job.needs):
            continue
        if claims is None:
            return job
        if claims.take(job.name):
            if job.result(folder) is None:
                return job
            claims.end(job.name)  # another worker has ended it since we looked
    return None


class _DiedError(Exception):
    """A worker's process has died."""


@dataclass
class _Worker:
    """A process that carries out one job at a time."""

    number: int
    process: BaseProcess
    pipe: Connection
    busy: Job | None = None
    seconds: float = 0.0  # of processor time

    @classmethod
    def start(cls, number: int, folder: Path) -> _Worker:
        context = multiprocessing.get_context(_start_method())
        context.set_forkserver_preload([PRELOAD])
        ours, theirs = context.Pipe()
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(theirs, folder, number, _environment_of(number)), daemon=True
        )
        process.start()
        theirs.close()
        return cls(number, process, ours)

    def give(self, job: Job) -> None:
        self.busy = job
        with suppress(BrokenPipeError):  # (its death is noticed when listening to it)
            self.pipe.send(job)

    def hear(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None

    def _died(self) -> _DiedError:
        self.process.join()
        code = self.process.exitcode
        why = "; was memory short? Use fewer --workers" if code == -signal.SIGKILL else ""
        return _DiedError(
            f"its process died (exit code {code}){why}. What is done is kept: the same command "
            "goes on from here."
        )

    def replace(self, folder: Path) -> None:
        """Start a new process in place of one that has died."""
        other = self.start(self.number, folder)
        self.process, self.pipe = other.process, other.pipe

    def stop(self) -> None:
        """Let it write a checkpoint, then end it."""
        self.process.terminate()  # a training stops after the current step
        self.process.join(PATIENCE)
        self.process.kill()


def _start_method() -> str:
    """Fork workers from a process with all imports, where that is known to be safe."""
    return "forkserver" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


def _environment_of(number: int) -> dict[str, str]:
    """The environment of a worker: ours as it is now, with one of the GPUs, if there are any."""
    here = dict(os.environ)
    if torch.cuda.is_available():
        before = here.get("CUDA_VISIBLE_DEVICES")
        gpus = before.split(",") if before else [str(i) for i in range(torch.cuda.device_count())]
        here["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    return here


def _end_with_parent() -> None:
    """End this process when its parent is gone for whatever reason, and free its resources."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@one_thread()
def _work(pipe: Connection, folder: Path, number: int, environment: dict[str, str]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for stop in set(STOP_SIGNALS) - {signal.SIGTERM}:
        signal.signal(stop, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent decides
    os.environ.clear()
    os.environ.update(environment)
    preload = import_module(PRELOAD)
    # Imports shared by all workers are counted once.
    shared = number == 0 and os.getpid() != preload.IMPORTER
    told = -preload.IMPORT_SECONDS if shared else 0.0

    def end(kind: str, text: str) -> None:
        nonlocal told
        now = time.process_time()
        pipe.send((kind, text, now - told))
        told = now

    # Denormal numbers are a hundred times slower: a model would pay for its zeros.
    torch.set_flush_denormal(True)
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            result = job.carry_out(folder, lambda *at: pipe.send(("at", *at)))
            end("done", job.summary(result))
        except Interrupted:
            pipe.send(("stopped",))
            return
        except Exception as error:  # a bug in one job must not stop the others
            end("failed", in_short(error))
