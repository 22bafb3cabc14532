"""A task: windows split into training, validation and test, and checked for defects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import PositiveInt, checked, shortened
from spacetime_en.data.given import GivenWindows
from spacetime_en.data.leaks import REPEATED, copies, overlaps
from spacetime_en.data.steps import TargetSteps, parse_steps
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows
from spacetime_en.graph import SpacetimeGraph

Split = Literal["train", "val", "test"]
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Task:
    """Training, validation and test windows.

    Targets from which nothing can be learned (see :func:`check_targets`) are rejected, and so is a
    trajectory, or a copy of it, in two splits. All windows use the origin of the training windows.

    Args:
        name: of the task.
        train, val, test: the windows: :class:`Windows`, or any sequence whose items are pairs
            (SpacetimeGraph, Forecast) with a batch of one.
        audit: accept bad targets, to study bad data; everything derived from the task then
            carries ``label``.
    """

    name: str
    train: Windows
    val: Windows
    test: Windows
    audit: bool = False
    problems: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for split, windows in self.splits.items():
            if not isinstance(windows, Windows):
                object.__setattr__(self, split, GivenWindows(windows, split))
        for split in ("val", "test"):
            object.__setattr__(self, split, self.splits[split].with_origin(self.train.origin))
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
            windows.add_to(digest)
        return digest.hexdigest()

    @property
    def label(self) -> str:
        """The display name, which says so if the task is only fit for an audit."""
        return f"{self.name} [AUDIT: {'; '.join(self.problems)}]" if self.problems else self.name

    @classmethod
    @checked
    def from_trajectories(
        cls,
        trajectories: Trajectories,
        *,
        length: PositiveInt | None = None,
        stride: PositiveInt | None = None,
        target_steps: TargetSteps | None = None,
        frame_interval: PositiveInt | None = None,
        counts: tuple[int, int, int] | None = None,
        splits: tuple[Split, ...] | None = None,
        up: tuple[float, ...] | None = None,
        name: str = "data",
        audit: bool = False,
        **options: Any,
    ) -> Task:
        """Build a task from any trajectories, in order: 80 % train, 10 % validation, 10 % test.

        With at least ten runs, the runs are split; with fewer, time is, and no window crosses a
        boundary. If a tenth of the time is too short for a window, three or more runs are split as
        runs after all; with fewer, validation and test each get the time of two windows, up to a
        third. Runs that have labels, ``meta["splits"]`` or `splits`, are split by these.

        Args:
            trajectories: the data.
            length: number of frames of a window, L; None: suggested by the frames, see
                :func:`suggest_windows`; likewise for the next two.
            stride: frame intervals from one frame of a window to the next.
            target_steps: frame intervals from the last frame of a window to its target, or to
                several along a path: 12, 1..12 or 1,2,4.
            frame_interval: the unit of stride and target_steps, in steps of the data; None: the
                most common gap between frames.
            counts: numbers of runs in the three splits, instead of fractions.
            splits: train, val or test for each run, overriding those in the data.
            up: the direction against gravity, such as 0 0 1, overriding that in the data; read by
                models with the option up.
            options: further options of :class:`Windows`.
        """
        if up is not None:
            trajectories = trajectories.with_up(up)
        num = len(trajectories)
        if options.get("runs") is not None or options.get("steps") is not None:
            raise InputError("runs, steps: the splits decide them; build Windows to choose them.")
        labels = None if counts is not None else splits or trajectories.meta.get("splits")
        by_time = counts is None and labels is None and num < 10
        interval = trajectories.frame_interval if frame_interval is None else frame_interval
        suggested = suggest_windows(trajectories, interval, share=0.1 if by_time else 1.0)
        if not trajectories.measured_velocities:  # these are differences of two frames
            suggested = (max(2, suggested[0]), *suggested[1:])
        length = suggested[0] if length is None else length
        stride = suggested[1] if stride is None else stride
        target_steps = suggested[2] if target_steps is None else target_steps

        def windows(**where: Any) -> Windows:
            where |= {"frame_interval": interval} | options
            return Windows(trajectories, length, stride, target_steps, **where)

        if by_time:
            span = ((length - 1) * stride + parse_steps(target_steps)[-1]) * interval
            shares = _shares_of_time(trajectories, span, fixed=num >= 3)
            if shares is not None:
                parts = [windows(steps=share) for share in shares]
                return cls(name, parts[0], parts[1], parts[2], audit=audit)
            if num < 3:
                raise InputError(
                    f"trajectories: {num} run{'s' * (num > 1)} of {len(trajectories.steps)} frames "
                    "can be split neither by run (at least three) nor by time (a third is too "
                    f"short for windows of {span // interval} frame intervals from the first "
                    "frame to the last target); give more of either, or shorter windows."
                )
        if labels is not None:
            parts = [windows(runs=runs) for runs in _labelled(labels, num)]
            return cls(name, parts[0], parts[1], parts[2], audit=audit)
        most = (num * 8 // 10, num // 10) if num >= 10 else (num - 2, 1)
        sizes = counts or (*most, num - sum(most))
        if sum(sizes) > num or min(sizes) < 1:
            raise InputError(
                f"counts: expected three positive numbers, together at most the {num} runs, "
                f"found {shortened(counts)}."
            )
        parts = [windows(runs=part) for part in np.split(np.arange(num), np.cumsum(sizes))[:3]]
        return cls(name, parts[0], parts[1], parts[2], audit=audit)


def _shares_of_time(
    trajectories: Trajectories, needed: int, fixed: bool
) -> list[NDArray[np.int64]] | None:
    """The first and last step of the three time splits, (2,), or (R, 2) if runs differ.

    Validation and test get a tenth each; unless that is `fixed`, twice what a window needs if a
    tenth is too short, up to a third. None: a window still does not fit.
    """
    steps, lengths = trajectories.steps, trajectories.lengths
    first, last = steps[0], steps[-1] if lengths is None else steps[lengths - 1]
    longest = max(1, int(np.max(last - first)))
    for tenths in (1.0,) if fixed else (1.0, min(20 * needed / longest, 10 / 3)):
        borders = ((10 - 2 * tenths) / 10, (10 - tenths) / 10)
        a, b = (first + ((last - first) * share).astype(np.int64) for share in borders)
        bounds = (first, a), (a + 1, b), (b + 1, last)
        spans = [np.stack(np.broadcast_arrays(*pair), axis=-1) for pair in bounds]
        if min(int(np.ptp(span.reshape(-1, 2), axis=1).max()) for span in spans) >= needed:
            return spans
    return None


def _labelled(labels: Sequence[str], num: int) -> list[NDArray[np.int64]]:
    """The runs of each split, by their labels."""
    if len(labels) != num:
        raise InputError(
            f"splits: expected a label for each of the {num} runs, found {len(labels)}."
        )
    if unknown := set(labels) - set(SPLITS):
        raise InputError(f"splits: expected {', '.join(SPLITS)}, found {shortened(min(unknown))}.")
    runs = [np.flatnonzero(np.array(labels) == split) for split in SPLITS]
    for split, own in zip(SPLITS, runs, strict=True):
        if len(own) == 0:
            raise InputError(
                f"splits: no run is labelled {split!r}; give each of {', '.join(SPLITS)} at least "
                "one."
            )
    return runs


def suggest_windows(
    trajectories: Trajectories, interval: int, share: float = 1.0
) -> tuple[int, int, int]:
    """Length, stride and target_steps that fit the frames, counted in intervals of `interval`.

    Evenly spaced frames and one far after them (as from :func:`simulate`): the former are the
    input, the last is the target. Otherwise up to ten consecutive frames in, the next one out, few
    enough for several windows in the smallest `share` of the time.
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
    """Yield a sentence for each defect of the targets.

    Up to `most` windows, spread evenly, are checked, without noise. Targets are bad if they contain
    NaN, are all zero or all the same, or if more than a few repeat a frame of their input.
    """
    N, n = windows.trajectories.x.shape[2:]
    frames = windows.length + len(windows.target_steps)
    fits = max(1, (1 << 28) // (16 * frames * N * n))  # a quarter of a gigabyte
    graph, target = windows.without_noise().sample(min(most, fits))
    mask = target.x.new_ones(target.x.shape[:3], dtype=torch.bool)
    mask = mask if target.mask is None else target.mask  # (W, T, N)
    x, v = target.x[mask], target.v[mask]  # (entries in the mask, n)
    zero = torch.from_numpy(-windows.origin).to(x)  # what positions of 0 look like
    if not (x.isfinite().all() and v.isfinite().all()):
        yield "targets hold NaN or infinite values."
    elif (x == zero).all() or (v == 0).all():
        what = "positions" if (x == zero).all() else "velocities"
        yield (
            f"all target {what} are zero; was the target frame ever written? A network that "
            "outputs 0 would be perfect."
        )
    elif len(target.x) > 1 and _all_the_same(target.x, mask):
        yield "all targets are the same; there is nothing to forecast."
    else:
        repeats = _repeats(graph, target.x, mask).double().mean().item()
        if repeats > REPEATED:
            yield (
                f"{repeats:.0%} of the targets equal a frame of their input; the target would be "
                "given away. Is target_steps right?"
            )


def _all_the_same(x: Tensor, mask: Tensor) -> bool:
    """Whether targets x (W, T, N, n) are the same in all windows, wherever the mask is True."""
    if mask.all():
        return bool((x == x[:1]).all())
    counted = x[mask]
    return bool((counted == counted[:1]).all())


def _repeats(graph: SpacetimeGraph, x: Tensor, mask: Tensor) -> Tensor:
    """Whether a target repeats a frame of its input, (W, T)."""
    repeated = torch.zeros(x.shape[:2], dtype=torch.bool)
    for frame in graph.x.unbind(1):
        same = (frame[:, None] == x).all(-1) | ~mask
        repeated |= same.all(-1)
    if graph.observed is not None:  # few nodes may be at rest, which leaks nothing
        moved = (graph.x != graph.x[:, -1:]).any(-1) & graph.observed
        repeated &= moved.flatten(1).any(1)[:, None]
    return repeated & mask.any(-1)
