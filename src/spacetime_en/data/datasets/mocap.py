"""The benchmarks on CMU motion capture: which trials, which frames, who is trained on what.

The splits are those of the benchmarks (EGHN's for running, ESTAG's for walking and basketball);
of the last two only the test windows are known (basketball's for certain, walking's very
probably), the published division of the rest into training and validation is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spacetime_en._util.errors import InputError, no_such
from spacetime_en.data.readers.mocap import (
    FRAMES_PER_SECOND,
    MotionFiles,
    joint_attributes,
    meta_of,
)
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows

Motion = Literal["walk", "run", "basketball"]
Protocol = Literal["ten-frames", "one-frame"]
# Length, stride and target_steps of the windows, see Windows. "One
# frame" is one with its velocity, which is the difference to the next: two frames are seen.
PROTOCOLS: dict[Protocol, tuple[int, int, int]] = {
    "ten-frames": (10, 5, 5),
    "one-frame": (2, 1, 29),
}


def find_motions(folders: Sequence[Path]) -> Path:
    """The first of `folders` that holds ASF/AMC files, plain or in a tar file.

    ``$SPACETIME_EN_CMU`` comes before all.
    """
    given = os.environ.get("SPACETIME_EN_CMU")
    for folder in [Path(given)] if given else folders:
        if folder.is_dir():
            if any(folder.rglob("*.[aA][mM][cC]")):
                return folder
            for archive in sorted([*folder.glob("*.tar*"), *folder.glob("*.tgz")]):
                return archive
        elif folder.is_file():
            return folder
    if given:
        raise InputError(f"SPACETIME_EN_CMU: {given} holds no ASF/AMC files, nor a tar file.")
    raise InputError(
        "CMU motion capture: the data are not here; set SPACETIME_EN_CMU to a folder with the "
        f"ASF/AMC files of subjects 09, 35 and 102 (mocap.cs.cmu.edu), or put them into "
        f"{folders[0]}."
    )


def load_motions(path: Path, motion: Motion) -> Trajectories:
    """The trials of a benchmark, joints named by features, bones as edges."""
    files = MotionFiles(path)
    runs = []
    for trial in splits(motion)["trials"]:
        name, _, first = trial.partition("[")  # 09_10[6:] begins with its seventh frame
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
    if protocol not in PROTOCOLS:
        raise no_such("protocol", protocol, PROTOCOLS)
    length, stride, target_steps = PROTOCOLS[protocol]
    made = []
    for split in ("train", "val", "test"):
        own = splits(motion)[split]
        pairs = [(int(run), start) for run, starts in own.items() for start in starts]
        ends = (length - 1) * stride + target_steps
        lengths = trajectories.lengths
        lengths = (
            np.full(len(trajectories), len(trajectories.times)) if lengths is None else lengths
        )
        lost = [run for run, start in pairs if start + ends >= lengths[run]]
        if lost:
            raise InputError(
                f"protocol: {len(lost)} of the {len(pairs)} {split} windows of {motion!r} reach "
                f"beyond their trials; {protocol!r} is not for this motion."
            )
        runs = np.array(sorted({run for run, _ in pairs}))
        made.append(
            Windows(trajectories, length, stride, target_steps, runs=runs, starts=np.array(pairs))
        )
    return made[0], made[1], made[2]


@cache
def splits(motion: Motion) -> dict[str, Any]:
    """Trials, and for each split the first frames of its windows, by the number of the trial."""
    file = resources.files("spacetime_en.data.datasets") / "mocap_splits.json"
    return dict(json.loads(file.read_text())[motion])
