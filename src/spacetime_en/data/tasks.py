"""Forecasting tasks by name: windows split into train, validation and test, checked and cached."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import msgspec
import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from spacetime_en.data import egnn_nbody
from spacetime_en.data.leaks import REPEATED, copies, overlaps
from spacetime_en.data.mocap import (
    Motion,
    Protocol,
    benchmark_windows,
    find_motions,
    load_motions,
)
from spacetime_en.data.readers.solar import solar_system
from spacetime_en.data.shards import is_whole
from spacetime_en.data.simulation import simulate
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Targets, Windows
from spacetime_en.errors import InputError, no_such
from spacetime_en.progress import progress_bar
from spacetime_en.schema import Count, NotNegative, Positive, arguments

Million = Annotated[int, msgspec.Meta(ge=1, le=10**6)]

MOST_WORK = 10**13  # steps of pairs of nodes that a named task may take to simulate: hours


@dataclass(frozen=True)
class Task:
    """Windows to learn from, to choose by, and to be judged by.

    A task refuses to exist with targets from which nothing can be learned (see
    :func:`check_targets`) or with a trajectory, or a copy of it, in two splits. All windows are
    seen from the origin of those to learn from.

    Args:
        name: of the task.
        train, val, test: the windows.
        audit: let bad targets through, for the study of bad data; everything made from the task
            then carries ``label``.
    """

    name: str
    train: Windows
    val: Windows
    test: Windows
    audit: bool = False
    problems: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for split in ("val", "test"):
            seen = self.splits[split].seen_from(self.train.origin)
            object.__setattr__(self, split, seen)
        problems = [*overlaps(self.splits)]
        for split, windows in self.splits.items():
            problems += [f"{split}: {problem}" for problem in check_targets(windows)]
        problems = problems or [*copies(self.splits)]
        object.__setattr__(self, "problems", tuple(problems))
        if problems and not self.audit:
            raise InputError(f"task {self.name!r}: {problems[0]}")

    @property
    def splits(self) -> dict[str, Windows]:
        """The three splits by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def fingerprint(self) -> str:
        """A hash of the data and of how they are cut; another task has another."""
        known = hashlib.sha256()
        for windows in self.splits.values():
            w = windows
            known.update(w.trajectories.fingerprint.encode())
            known.update(repr((w.noise, w.noise_seed, w.targets, str(w.dtype))).encode())
            if w.radius is not None or w.k is not None:
                known.update(repr((w.radius, w.k)).encode())
            known.update(np.ascontiguousarray(w.runs).data)
            for first in np.array_split(w.first, 1 + len(w.first) // 100_000):
                known.update(w.frames_from(first).data)
            if w.numbers is not None:
                known.update(np.ascontiguousarray(w.numbers).data)
        return known.hexdigest()

    @property
    def label(self) -> str:
        """The name to print; says so if the task is only fit for an audit."""
        return f"{self.name} [AUDIT: {'; '.join(self.problems)}]" if self.problems else self.name

    @classmethod
    def from_trajectories(
        cls,
        trajectories: Trajectories,
        *,
        length: int | None = None,
        stride: int | None = None,
        horizon: int | None = None,
        counts: tuple[int, int, int] | None = None,
        name: str = "data",
        audit: bool = False,
        **options: Any,
    ) -> Task:
        """A task on any trajectories, in their order: 80 % train, 10 % validation, 10 % test.

        With at least ten runs the runs are split; with fewer, time is, and no window reaches over
        a border.

        Args:
            trajectories: the data.
            length, stride, horizon: of the windows, see :class:`Windows`; None: as the frames
                suggest, see :func:`suggest_windows`.
            counts: numbers of runs in the three splits, in place of the shares.
            options: further options of :class:`Windows`.
        """

        num = len(trajectories)
        by_time = counts is None and num < 10
        suggested = suggest_windows(trajectories.steps, share=0.1 if by_time else 1.0)
        if not trajectories.measured_velocities:  # which are differences of two frames
            suggested = (max(2, suggested[0]), *suggested[1:])
        length, stride, horizon = (
            own if given is None else given
            for given, own in zip((length, stride, horizon), suggested, strict=True)
        )

        def windows(**where: Any) -> Windows:
            return Windows(trajectories, length, stride, horizon, **where, **options)

        if by_time:
            first, last = int(trajectories.steps[0]), int(trajectories.steps[-1])
            a, b = (first + int((last - first) * share) for share in (0.8, 0.9))
            if min(b - a, last - b) - 1 < (length - 1) * stride + horizon:
                raise InputError(
                    f"trajectories: {num} runs of {len(trajectories.steps)} frames can be split "
                    "neither by run (at least ten) nor by time (a tenth is too short for windows "
                    f"of {length} frames and a target); give more of either, or shorter windows."
                )
            parts = [windows(steps=span) for span in ((first, a), (a + 1, b), (b + 1, last))]
            return cls(name, parts[0], parts[1], parts[2], audit=audit)
        ends = np.cumsum(counts or (num * 8 // 10, num // 10, num - num * 8 // 10 - num // 10))
        if ends[-1] > num or (np.diff(ends, prepend=0) < 1).any():
            raise InputError(
                f"counts: expected three positive numbers, together at most the {num} runs, "
                f"found {counts}."
            )
        parts = [windows(runs=part) for part in np.split(np.arange(num), ends)[:3]]
        return cls(name, parts[0], parts[1], parts[2], audit=audit)


def suggest_windows(steps: NDArray[np.int64], share: float = 1.0) -> tuple[int, int, int]:
    """Length, stride and horizon that fit the frames.

    Evenly spaced frames and one far behind them (as :func:`simulate` makes): all of the former in,
    the last out. Otherwise up to ten neighbouring frames in, the next one out, few enough for
    several windows in the smallest `share` of the time.
    """
    if len(steps) < 2:
        raise InputError(f"windows: need at least two frames, found {len(steps)}.")
    gaps = np.diff(steps)
    if len(steps) > 2 and (gaps[:-1] == gaps[0]).all() and gaps[-1] != gaps[0]:
        return len(steps) - 1, int(gaps[0]), int(gaps[-1])
    stride = int(np.bincount(gaps).argmax()) if gaps.max() < 1 << 20 else int(gaps[0])
    return min(10, max(1, int(share * len(steps) / 2.5))), stride, stride


def check_targets(windows: Windows, most: int = 20_000) -> Iterable[str]:
    """What is wrong with the targets, one sentence each: nothing, for good ones.

    Looks at up to `most` windows, spread over all, before noise. Bad are targets that hold NaN, are
    all zero, are all the same, or, more than a few, repeat a frame of their own input.
    """
    N, n = windows.trajectories.x.shape[2:]
    fits = max(1, (1 << 28) // (16 * (windows.length + 1) * N * n))  # a quarter of a gigabyte
    graph, target = windows.without_noise().some(min(most, fits))
    x, v = target.x, target.v
    zero = torch.from_numpy(-windows.origin).to(x)  # what positions of 0 look like
    if not (x.isfinite().all() and v.isfinite().all()):
        yield "targets hold NaN or infinite values."
    elif (x == zero).all() or (v == 0).all():
        what = "positions" if (x == zero).all() else "velocities"
        yield (
            f"all target {what} are zero; was the target frame ever written? A network that "
            "outputs 0 would be perfect."
        )
    elif len(x) > 1 and (x == x[:1]).all():
        yield "all targets are the same; there is nothing to forecast."
    else:
        repeats = (graph.x == x[:, None]).all(-1).all(-1).any(1).double().mean().item()
        if repeats > REPEATED:
            yield (
                f"{repeats:.0%} of the targets equal a frame of their input; the target would be "
                "given away. Is the horizon right?"
            )


# --- by name ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulated:
    """What a named task is made of; every field can be replaced in :func:`load_task`.

    Args:
        system: charged, gravity or springs.
        nodes: number of nodes N.
        length: number of frames L.
        stride: steps between frames.
        horizon: steps from the last frame to the target.
        counts: trajectories for training, validation and test.
        noise: variance of noise on all that is observed.
        noise_seed: of the noise.
        seed: of the trajectories.
        scheme: kick-drift (the paper's), verlet or adaptive.
    """

    system: Literal["charged", "gravity", "springs"]
    nodes: Million = 5
    length: Million = 10
    stride: Positive = 10
    horizon: Positive = 10_000
    counts: tuple[Positive, Positive, Positive] = (16_000, 2_000, 2_000)
    noise: NotNegative = 0.0
    noise_seed: Count = 0
    seed: Count = 0
    scheme: Literal["kick-drift", "verlet", "adaptive"] = "kick-drift"


@dataclass(frozen=True)
class _EGNNBenchmark:
    """Frame 30 to frame 40 (45, 50) of EGNN's data.

    Args:
        horizon: 1,000, 1,500 or 2,000 steps.
    """

    horizon: Positive = 1_000

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
        horizon: days from the last frame to the target.
    """

    length: Million = 10
    stride: Positive = 10
    horizon: Positive = 30


Recipe = Simulated | _EGNNBenchmark | _Motion | _SolarSystem
TASKS: dict[str, Recipe] = {
    "charged": Simulated("charged"),
    "charged-noisy": Simulated("charged", noise=0.5),
    "gravity": Simulated("gravity", horizon=1_000),
    "springs": Simulated("springs", horizon=1_000),
    "egnn-nbody": _EGNNBenchmark(),
    "solar-system": _SolarSystem(),
    "mocap-walk": _Walk(),
    "mocap-run": _RunMotion(),
    "mocap-basketball": _Basketball(),
}


def of_order_one(name: str | None) -> bool:
    """Whether the data of a task are in units in which networks can see them as they are."""
    return isinstance(TASKS.get(name or ""), Simulated | _EGNNBenchmark)


def cache_folder() -> Path:
    """Where tasks are kept: $SPACETIME_EN_CACHE, or the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spacetime-en"
    return Path(os.environ.get("SPACETIME_EN_CACHE", default))


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
        settings: replace the task's own: ``nodes``, ``horizon``, ``counts``, ``seed``, ...
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
        every = math.gcd(recipe.stride, recipe.horizon)
        return Task.from_trajectories(solar_system(every=every), name=name, **vars(recipe))
    if isinstance(recipe, _Motion):
        data = load_motions(find_motions([folder / "cmu_mocap"]), recipe.motion)
        return Task(name, *benchmark_windows(data, recipe.motion, recipe.protocol))
    last = (recipe.length - 1) * recipe.stride
    save = [*range(0, last + 1, recipe.stride), last + recipe.horizon]
    key = (
        f"{recipe.system}-N{recipe.nodes}-L{recipe.length}x{recipe.stride}-H{recipe.horizon}"
        f"-{sum(recipe.counts)}-seed{recipe.seed}-{recipe.scheme}"
    )
    steps = sum(recipe.counts) * (last + recipe.horizon) * recipe.nodes**2
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
        horizon=recipe.horizon,
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
    span = (frame_30, frame_30 + recipe.horizon)  # the one window from frame 30 to its target
    runs = np.split(np.arange(len(data)), np.cumsum(recipe.counts))[:3]
    train, val, test = (Windows(data, 1, 1, recipe.horizon, steps=span, runs=part) for part in runs)
    return Task(name, train, val, test)
