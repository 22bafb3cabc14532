"""A task: windows split into training, validation and test, and checked for faults."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt, checked, shortened
from spacetime_en.data.leaks import REPEATED, copies, overlaps
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows


@dataclass(frozen=True)
class Task:
    """Training, validation and test windows.

    Targets from which nothing can be learned (see :func:`check_targets`) are refused, and so is a
    trajectory, or a copy of it, in two splits. All windows take the origin of the training windows.

    Args:
        name: of the task.
        train, val, test: the windows.
        audit: accept bad targets, to study bad data; everything made from the task then carries
            ``label``.
    """

    name: str
    train: Windows
    val: Windows
    test: Windows
    audit: bool = False
    problems: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for split in ("val", "test"):
            windows = self.splits[split].with_origin(self.train.origin)
            object.__setattr__(self, split, windows)
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
        """A hash of the data and of how they are cut."""
        digest = hashlib.sha256()
        for windows in self.splits.values():
            w = windows
            digest.update(w.trajectories.fingerprint.encode())
            digest.update(repr((w.noise, w.noise_seed, w.targets, str(w.dtype))).encode())
            if w.radius is not None or w.k is not None:
                digest.update(repr((w.radius, w.k)).encode())
            digest.update(np.ascontiguousarray(w.runs).data)
            for start in range(0, len(w.cut), 100_000):
                digest.update(w.cut.frames(slice(start, start + 100_000)).data)
            if w.numbers is not None:
                digest.update(np.ascontiguousarray(w.numbers).data)
        return digest.hexdigest()

    @property
    def label(self) -> str:
        """The name to print; it says if the task is only fit for an audit."""
        return f"{self.name} [AUDIT: {'; '.join(self.problems)}]" if self.problems else self.name

    @classmethod
    @checked
    def from_trajectories(
        cls,
        trajectories: Trajectories,
        *,
        length: PositiveInt | None = None,
        stride: PositiveInt | None = None,
        target_steps: PositiveInt | None = None,
        frame_interval: PositiveInt | None = None,
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
            length, stride, target_steps: of the windows, see :class:`Windows`; None: as the frames
                suggest, see :func:`suggest_windows`.
            frame_interval: the unit of stride and target_steps, see :class:`Windows`.
            counts: numbers of runs in the three splits, in place of the shares.
            options: further options of :class:`Windows`.
        """

        num = len(trajectories)
        if options.get("runs") is not None or options.get("steps") is not None:
            raise InputError("runs, steps: the splits decide them; build Windows to choose them.")
        by_time = counts is None and num < 10
        interval = trajectories.frame_interval if frame_interval is None else frame_interval
        suggested = suggest_windows(trajectories, interval, share=0.1 if by_time else 1.0)
        if not trajectories.measured_velocities:  # which are differences of two frames
            suggested = (max(2, suggested[0]), *suggested[1:])
        length, stride, target_steps = (
            default if given is None else given
            for given, default in zip((length, stride, target_steps), suggested, strict=True)
        )

        def windows(**where: Any) -> Windows:
            where |= {"frame_interval": interval} | options
            return Windows(trajectories, length, stride, target_steps, **where)

        if by_time:
            first, last = int(trajectories.steps[0]), int(trajectories.steps[-1])
            a, b = (first + int((last - first) * share) for share in (0.8, 0.9))
            if min(b - a, last - b) - 1 < ((length - 1) * stride + target_steps) * interval:
                raise InputError(
                    f"trajectories: {num} runs of {len(trajectories.steps)} frames can be split "
                    "neither by run (at least ten) nor by time (a tenth is too short for windows "
                    f"of {length} frames and a target); give more of either, or shorter windows."
                )
            parts = [windows(steps=span) for span in ((first, a), (a + 1, b), (b + 1, last))]
            return cls(name, parts[0], parts[1], parts[2], audit=audit)
        sizes = counts or (num * 8 // 10, num // 10, num - num * 8 // 10 - num // 10)
        if sum(sizes) > num or min(sizes) < 1:
            raise InputError(
                f"counts: expected three positive numbers, together at most the {num} runs, "
                f"found {shortened(counts)}."
            )
        parts = [windows(runs=part) for part in np.split(np.arange(num), np.cumsum(sizes))[:3]]
        return cls(name, parts[0], parts[1], parts[2], audit=audit)


def suggest_windows(
    trajectories: Trajectories, interval: int, share: float = 1.0
) -> tuple[int, int, int]:
    """Length, stride and target_steps that fit the frames, counted in intervals of `interval`.

    Evenly spaced frames and one far behind them (as :func:`simulate` makes): all of the former in,
    the last out. Otherwise up to ten neighbouring frames in, the next one out, few enough for
    several windows in the smallest `share` of the time.
    """
    steps = trajectories.steps
    if len(steps) < 2:
        raise InputError(f"windows: need at least two frames, found {len(steps)}.")
    gaps = np.diff(steps)
    even = (gaps[:-1] == gaps[0]).all() and not (gaps[[0, -1]] % interval).any()
    if len(steps) > 2 and even and gaps[-1] != gaps[0]:
        return len(steps) - 1, int(gaps[0]) // interval, int(gaps[-1]) // interval
    stride = max(1, trajectories.frame_interval // interval)
    return min(10, max(1, int(share * len(steps) / 2.5))), stride, stride


def check_targets(windows: Windows, most: int = 20_000) -> Iterable[str]:
    """Yield a sentence for each fault of the targets.

    Up to `most` windows, spread over all, are checked, without noise. Targets are bad if they hold
    NaN, are all zero or all the same, or if more than a few repeat a frame of their input.
    """
    N, n = windows.trajectories.x.shape[2:]
    fits = max(1, (1 << 28) // (16 * (windows.length + 1) * N * n))  # a quarter of a gigabyte
    graph, target = windows.without_noise().sample(min(most, fits))
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
                "given away. Is target_steps right?"
            )
