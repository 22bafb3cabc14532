"""Carry out experiments in several processes, with one progress display."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, TimeRemainingColumn

from spacetime_en._util.errors import InputError, Interrupted
from spacetime_en._util.files import locked, refuse_foreign
from spacetime_en._util.machine import cores
from spacetime_en._util.progress import bars
from spacetime_en._util.signals import STOP_SIGNALS, stop_signals
from spacetime_en._util.terminal import Terminal, text_column
from spacetime_en._util.threads import one_thread
from spacetime_en.reproduce.experiment import RESULTS, carry_out, checked_result
from spacetime_en.reproduce.plan import Experiment, Scale

PATIENCE = 60.0  # seconds for workers to write their checkpoints when stopped


def carry_out_all(
    experiments: Sequence[Experiment], scale: Scale, folder: Path, workers: int | None = None
) -> list[str]:
    """Carry out all experiments without a result; call it again to resume after an interruption.

    Args:
        experiments: in an order in which each comes after those that it depends on.
        scale: the size of data and training budgets.
        folder: of the results.
        workers: number of processes, one core (or GPU) each; None for one per core or GPU.
    Returns: an error message for every experiment that failed.
    """
    most = os.cpu_count() or 1
    if workers is not None and not 0 < workers <= most:
        raise InputError(
            f"workers: expected 1 to {most}, the number of cores here, found {workers}."
        )
    refuse_foreign(folder, "reproduction", RESULTS)
    todo = [e for e in experiments if checked_result(folder, e, scale) is None]
    if not todo:
        return []
    count = min(len(todo), workers or torch.cuda.device_count() or cores())
    with (
        locked(folder),  # two commands in one folder would train the same runs at once
        _Display(len(experiments), len(experiments) - len(todo)) as display,
        stop_signals(signal.default_int_handler),  # all of them, as if Ctrl-C
    ):
        (folder / RESULTS).mkdir(exist_ok=True)  # by which the folder is known when it is resumed
        crew = [_Worker.start(number, scale, folder) for number in range(count)]
        try:
            return _supervise(crew, todo, scale, folder, display)
        except KeyboardInterrupt:
            raise Interrupted("stopped; the same command goes on from here") from None
        finally:
            for worker in crew:
                worker.stop()


def _supervise(
    crew: list[_Worker],
    todo: list[Experiment],
    scale: Scale,
    folder: Path,
    display: _Display,
) -> list[str]:
    """Hand out experiments whose trials are finished until none is left."""
    waiting, failed = list(todo), []
    unfinished = set(todo)
    while unfinished:
        for worker in crew:
            ready = (e for e in waiting if not unfinished.intersection(e.trials(scale)))
            if worker.busy is None and (experiment := next(ready, None)) is not None:
                waiting.remove(experiment)
                worker.give(experiment)
                display.at(worker, 0.0, "")
        by_pipe = {worker.pipe: worker for worker in crew if worker.busy is not None}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]  # type: ignore[index]
            experiment = worker.busy
            assert experiment is not None
            kind, *rest = worker.hear()
            if kind == "at":
                display.at(worker, *rest)
                continue
            if kind == "stopped":
                raise KeyboardInterrupt
            if kind == "failed":
                failed.append(f"{experiment.name}: {rest[0]}")
            worker.busy = None
            unfinished.remove(experiment)
            display.done(worker, experiment, rest[0])
    return failed


@dataclass
class _Worker:
    """A process that carries out one experiment at a time."""

    number: int
    process: BaseProcess
    pipe: Connection
    busy: Experiment | None = None

    @classmethod
    def start(cls, number: int, scale: Scale, folder: Path) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, scale, folder), daemon=True)
        with _one_gpu(number):
            process.start()
        theirs.close()
        return cls(number, process, ours)

    def give(self, experiment: Experiment) -> None:
        self.busy = experiment
        try:
            self.pipe.send(experiment)
        except BrokenPipeError:
            raise self._died() from None

    def hear(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None

    def _died(self) -> InputError:
        self.process.join()
        code = self.process.exitcode
        why = "; was memory short? Use fewer --workers" if code == -signal.SIGKILL else ""
        return InputError(
            f"{self.busy.name if self.busy else 'a worker'}: its process died (exit code "
            f"{code}){why}. What is done is kept: the same command goes on from here."
        )

    def stop(self) -> None:
        """Let it write a checkpoint, then end it."""
        self.process.terminate()  # a training stops after the current step
        self.process.join(PATIENCE)
        self.process.kill()


@contextmanager
def _one_gpu(number: int) -> Iterator[None]:
    """Let a process started in this block see only one of the GPUs, if there are any."""
    if not torch.cuda.is_available():
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = before.split(",") if before else [str(i) for i in range(torch.cuda.device_count())]
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@one_thread()
def _work(pipe: Connection, scale: Scale, folder: Path) -> None:
    for number in set(STOP_SIGNALS) - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent decides
    # Arithmetic on denormal numbers is a hundred times slower: a model would pay for its zeros.
    torch.set_flush_denormal(True)
    while True:
        try:
            experiment = pipe.recv()
        except EOFError:
            return
        try:
            result = carry_out(experiment, scale, folder, lambda *at: pipe.send(("at", *at)))
            pipe.send(("done", _summary(result)))
        except Interrupted:
            pipe.send(("stopped",))
            return
        except (InputError, OSError) as error:
            pipe.send(("failed", str(error)))
        except Exception as error:  # a bug in one experiment must not stop the others
            pipe.send(("failed", f"{type(error).__name__}: {error}"))


def _summary(result: dict[str, Any]) -> str:
    if "test" in result:
        return f"test MSE {result['test']['position_mse']['mean']:.4g}"
    return f"validation MSE {result['training'].get('val_mse', float('nan')):.4g}"


class _Display:
    """A bar for all and one for each worker; without a terminal, one line per result."""

    def __init__(self, total: int, done: int) -> None:
        self.console = Terminal(stderr=True)
        self.total, self.finished = total, done
        word = text_column("{task.fields[word]}")
        self.bars = bars(self.console, BarColumn(20), word, TimeRemainingColumn())
        self.fractions: dict[int, float] = {}
        self.lines: dict[int, Any] = {}
        self.all = self.bars.add_task("experiments", total=total, completed=done, word="")

    def __enter__(self) -> _Display:
        self.bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bars.stop()

    def at(self, worker: _Worker, fraction: float, word: str) -> None:
        assert worker.busy is not None
        name, number = worker.busy.name, worker.number
        if number not in self.lines:
            self.lines[number] = self.bars.add_task("", total=1.0, word="")
        self.bars.update(self.lines[number], description=name, completed=fraction, word=word)
        self.fractions[number] = fraction
        self._all()

    def done(self, worker: _Worker, experiment: Experiment, word: str) -> None:
        self.finished += 1
        self.fractions[worker.number] = 0.0
        self._all()
        self.console.say(f"{self.finished} of {self.total}  {experiment.name}: {word}")

    def _all(self) -> None:
        done = self.finished + 0.99 * sum(self.fractions.values())
        self.bars.update(self.all, completed=done, word=f"{self.finished} of {self.total}")
