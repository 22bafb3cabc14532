"""The CMU motion-capture benchmarks: which trials and frames, and how they are split.

The splits are those of the benchmarks (EGHN's for running, ESTAG's for walking and basketball);
for the last two only the test windows are known (basketball's for certain, walking's very
probably); how the rest was divided into training and validation was not published.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache as cached
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spacetime_en._util.errors import InputError
from spacetime_en.data.datasets.dataset import DataSet
from spacetime_en.data.readers.mocap import (
    FRAMES_PER_SECOND,
    MotionFiles,
    joint_attributes,
    meta_of,
)
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows

Motion = Literal["walk", "run", "basketball"]
Protocol = Literal["ten-frames", "one-frame"]
# Length, stride and target_steps of the windows, see Windows. "One frame" is a frame with its
# velocity, which is the difference to the next: the model sees two frames.
PROTOCOLS: dict[Protocol, tuple[int, int, int]] = {
    "ten-frames": (10, 5, 5),
    "one-frame": (2, 1, 29),
}


@dataclass(frozen=True)
class MotionCapture(DataSet):
    """People, measured: the CMU database (needs its files, see :func:`find_motions`).

    Args:
        motion: walk, run or basketball.
        protocol: ten-frames (each fifth, the next one out), or one-frame (with its velocity; the
            30th after it out).
    """

    motion: Motion
    protocol: Protocol = "ten-frames"

    def load(self, name: str, cache: Path) -> Task:
        """Read the trials of the benchmark, and cut its windows."""
        data = load_motions(find_motions(cache / "cmu_mocap"), self.motion)
        return Task(name, *benchmark_windows(data, self.motion, self.protocol))


def find_motions(folder: Path) -> Path:
    """The folder or tar file with the ASF/AMC files: ``$SPACETIME_EN_CMU``, if set, or `folder`."""
    given = os.environ.get("SPACETIME_EN_CMU")
    place = Path(given or folder)
    if place.is_file() or any(place.rglob("*.[aA][mM][cC]")):
        return place
    for archive in sorted([*place.glob("*.tar*"), *place.glob("*.tgz")]):
        return archive
    if given:
        raise InputError(f"SPACETIME_EN_CMU: {given} holds no ASF/AMC files, nor a tar file.")
    raise InputError(
        "CMU motion capture: the data are not here; set SPACETIME_EN_CMU to a folder with the "
        f"ASF/AMC files of subjects 09, 35 and 102 (mocap.cs.cmu.edu), or put them into "
        f"{folder}."
    )


def load_motions(path: Path, motion: Motion) -> Trajectories:
    """The trials of a benchmark, joints named by features, bones as edges."""
    files = MotionFiles(path)
    runs = []
    for trial in splits(motion)["trials"]:
        name, _, first = trial.partition("[")  # 09_10[6:] starts at its seventh frame
        runs.append(files.positions(name)[int(first.rstrip(":]") or 0) :])
    skeleton = files.skeleton(name)
    return Trajectories.from_runs(
        runs,
        time_step=1 / FRAMES_PER_SECOND,
        attributes=joint_attributes(skeleton, len(runs)),
        meta=meta_of(skeleton, splits(motion)["trials"])
        | {
            "source": "CMU Graphics Lab Motion Capture Database, mocap.cs.cmu.edu",
            "length_unit": "5.644 cm",
        },
    )


def benchmark_windows(
    trajectories: Trajectories, motion: Motion, protocol: Protocol
) -> tuple[Windows, Windows, Windows]:
    """The windows of the benchmark: training, validation, test."""
    length, stride, target_steps = PROTOCOLS[protocol]
    span = (length - 1) * stride + target_steps
    lengths = trajectories.lengths
    if lengths is None:
        lengths = np.full(len(trajectories), len(trajectories.times))

    def windows(split: str) -> Windows:
        trials = splits(motion)[split]
        starts = np.array([(int(run), start) for run in trials for start in trials[run]])
        outside = int((starts[:, 1] + span >= lengths[starts[:, 0]]).sum())
        if outside:
            raise InputError(
                f"protocol: {outside} of the {len(starts)} {split} windows of {motion!r} reach "
                f"beyond their trials; {protocol!r} is not for this motion."
            )
        runs = np.unique(starts[:, 0])
        return Windows(trajectories, length, stride, target_steps, runs=runs, starts=starts)

    return windows("train"), windows("val"), windows("test")


@cached
def splits(motion: Motion) -> dict[str, Any]:
    """The trials, and for each split the first frames of its windows, by trial number."""
    file = resources.files("spacetime_en.data.datasets") / "mocap_splits.json"
    return dict(json.loads(file.read_text())[motion])
