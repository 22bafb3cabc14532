"""Data sets by name: made or read on first use, checked and cached."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import msgspec
import numpy as np
from filelock import FileLock

from spacetime_en._util.errors import InputError, no_such
from spacetime_en._util.files import cache_folder
from spacetime_en._util.progress import progress_bar
from spacetime_en._util.schema import Count, NotNegative, Positive, arguments, checked
from spacetime_en.data.datasets import egnn_nbody
from spacetime_en.data.datasets.mocap import (
    Motion,
    Protocol,
    benchmark_windows,
    find_motions,
    load_motions,
)
from spacetime_en.data.datasets.solar import solar_system
from spacetime_en.data.shards import is_whole
from spacetime_en.data.simulation.simulator import simulate
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Targets, Windows

Million = Annotated[int, msgspec.Meta(ge=1, le=10**6)]

MOST_WORK = 10**13  # steps of pairs of nodes that a named task may take to simulate: hours


@dataclass(frozen=True)
class Simulated:
    """What a named task is made of; every field can be replaced in :func:`load_task`.

    Args:
        system: charged, gravity or springs.
        nodes: number of nodes N.
        length: number of frames L.
        stride: frame intervals from one frame to the next.
        target_steps: frame intervals from the last frame to the target.
        frame_interval: steps of the simulation in a frame interval.
        counts: trajectories for training, validation and test.
        noise: variance of noise on all that is observed.
        noise_seed: of the noise.
        seed: of the trajectories.
        scheme: kick-drift (the paper's), verlet or adaptive.
    """

    system: Literal["charged", "gravity", "springs"]
    nodes: Million = 5
    length: Million = 10
    stride: Positive = 1
    target_steps: Positive = 1_000
    frame_interval: Positive = 10
    counts: tuple[Positive, Positive, Positive] = (16_000, 2_000, 2_000)
    noise: NotNegative = 0.0
    noise_seed: Count = 0
    seed: Count = 0
    scheme: Literal["kick-drift", "verlet", "adaptive"] = "kick-drift"


@dataclass(frozen=True)
class _EGNNBenchmark:
    """Frame 30 to frame 40 (45, 50) of EGNN's data.

    Args:
        target_steps: 10, 15 or 20 frames; a frame of this benchmark is 100 simulation steps.
    """

    target_steps: Positive = 10

    @property
    def counts(self) -> tuple[int, int, int]:
        return len(egnn_nbody.TRAIN), len(egnn_nbody.VAL), len(egnn_nbody.TEST)


@dataclass(frozen=True)
class _Motion:
    """People, measured: the CMU database (needs its files, see :func:`find_motions`).

    Args:
        protocol: ten-frames (each fifth, the next one out), or one-frame (with its velocity; the
            30th after it out).
    """

    protocol: Protocol = "ten-frames"
    motion: ClassVar[Motion]


@dataclass(frozen=True)
class _Walk(_Motion):
    __doc__ = _Motion.__doc__
    motion = "walk"


@dataclass(frozen=True)
class _Basketball(_Motion):
    __doc__ = _Motion.__doc__
    motion = "basketball"


@dataclass(frozen=True)
class _RunMotion(_Motion):
    __doc__ = _Motion.__doc__
    protocol: Protocol = "one-frame"
    motion = "run"


@dataclass(frozen=True)
class _SolarSystem:
    """The Sun, the planets and the Moon from 1900 to 2037 (the extra ``solar``), split by time.

    Args:
        length: number of frames L.
        stride: days between frames.
        target_steps: days from the last frame to the target.
    """

    length: Million = 10
    stride: Positive = 10
    target_steps: Positive = 30


Recipe = Simulated | _EGNNBenchmark | _Motion | _SolarSystem
TASKS: dict[str, Recipe] = {
    "charged": Simulated("charged"),
    "charged-noisy": Simulated("charged", noise=0.5),
    "gravity": Simulated("gravity", target_steps=100),
    "springs": Simulated("springs", target_steps=100),
    "egnn-nbody": _EGNNBenchmark(),
    "solar-system": _SolarSystem(),
    "mocap-walk": _Walk(),
    "mocap-run": _RunMotion(),
    "mocap-basketball": _Basketball(),
}


def of_order_one(name: str | None) -> bool:
    """Whether the data of a task are in units in which networks can see them as they are."""
    return isinstance(TASKS.get(name or ""), Simulated | _EGNNBenchmark)


@checked
def load_task(
    name: str,
    *,
    targets: Targets = "observed",
    cache: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Task:
    """A task by name; its data are made on first use, with a progress bar, and verified ever after.

    Args:
        name: ``"charged"``, ``"charged-noisy"``, ``"gravity"``, ``"springs"``, ``"egnn-nbody"``,
            ``"solar-system"``, ``"mocap-walk"``, ``"mocap-run"``, ``"mocap-basketball"``.
        targets: with noisy observations, against what to measure; ``"zero"`` makes a task for the
            audit of published figures, and everything made from it says so.
        cache: folder for the data; None: :func:`cache_folder`.
        settings: replace the task's own: ``nodes``, ``target_steps``, ``counts``, ``seed``, ...
    """
    if name not in TASKS:
        raise no_such("task", name, TASKS)
    recipe = TASKS[name]
    known = vars(recipe)
    if unknown := set(settings) - set(known):
        raise InputError(
            f"{min(unknown)}: not a setting of task {name!r}, whose settings are: "
            f"{', '.join(known)}."
        )
    hints = get_type_hints(type(recipe), include_extras=True)
    recipe = type(recipe)(**arguments(known | settings, hints))
    folder = cache_folder() if cache is None else Path(cache)
    if targets != "observed" and not isinstance(recipe, Simulated):
        raise InputError(f"targets: task {name!r} has only those that were observed.")
    if isinstance(recipe, _EGNNBenchmark):
        return _egnn_task(name, recipe, folder)
    if isinstance(recipe, _SolarSystem):
        every = math.gcd(recipe.stride, recipe.target_steps)
        return Task.from_trajectories(
            solar_system(every=every), name=name, frame_interval=1, **vars(recipe)
        )
    if isinstance(recipe, _Motion):
        data = load_motions(find_motions([folder / "cmu_mocap"]), recipe.motion)
        return Task(name, *benchmark_windows(data, recipe.motion, recipe.protocol))
    stride, ahead = (n * recipe.frame_interval for n in (recipe.stride, recipe.target_steps))
    last = (recipe.length - 1) * stride
    save = [*range(0, last + 1, stride), last + ahead]
    key = (
        f"{recipe.system}-N{recipe.nodes}-L{recipe.length}x{stride}-H{ahead}"
        f"-{sum(recipe.counts)}-seed{recipe.seed}-{recipe.scheme}"
    )
    steps = sum(recipe.counts) * (last + ahead) * recipe.nodes**2
    if steps > MOST_WORK and not (folder / key).exists():
        raise InputError(
            f"task {name!r}: its trajectories are {steps:.1e} steps of pairs of nodes, days of "
            "work; make fewer or shorter ones, or make them apart: spacetime simulate, then --data."
        )
    with (
        _one_at_a_time(folder / key),
        progress_bar(f"making the data of {name}", sum(recipe.counts)) as progress,
    ):
        simulate(
            recipe.system,
            sum(recipe.counts),
            nodes=recipe.nodes,
            save=save,
            seed=recipe.seed,
            scheme=recipe.scheme,
            out=folder / key,
            progress=progress,
        )
    return Task.from_trajectories(
        Trajectories.open(folder / key, verify=True),
        length=recipe.length,
        stride=recipe.stride,
        target_steps=recipe.target_steps,
        frame_interval=recipe.frame_interval,
        counts=recipe.counts,
        name=name,
        noise=recipe.noise,
        noise_seed=recipe.noise_seed,
        targets=targets,
        audit=targets == "zero",
    )


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Several processes may want the same data at once: the first makes them, the others wait.

    Data that are there are only read: they may be in a cache that nobody can write to.
    """
    if is_whole(folder):
        yield
        return
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise InputError(
            f"{folder.parent}: data of tasks are kept here, and cannot be ({error.strerror}); set "
            "SPACETIME_EN_CACHE to a folder that can be written to."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _egnn_task(name: str, recipe: _EGNNBenchmark, cache: Path) -> Task:
    folder = cache / "egnn-nbody"
    with _one_at_a_time(folder):
        if not is_whole(folder):
            with progress_bar(f"making the data of {name}", sum(recipe.counts)) as progress:
                egnn_nbody.replay(progress=progress).save(folder)
    data = Trajectories.open(folder, verify=True)
    frame_30 = egnn_nbody.FRAMES[0]
    interval = 100
    span = (frame_30, frame_30 + interval * recipe.target_steps)  # one window, from frame 30
    runs = np.split(np.arange(len(data)), np.cumsum(recipe.counts))[:3]
    train, val, test = (
        Windows(data, 1, 1, recipe.target_steps, frame_interval=interval, steps=span, runs=part)
        for part in runs
    )
    return Task(name, train, val, test)
