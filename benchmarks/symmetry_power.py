"""False alarms of ``spacetime symmetries``, and its power against broken symmetries.

    python -m benchmarks.symmetry_power --sets 100              # results/symmetries/power.json

Small worlds whose particles softly attract each other and jitter, in a plain NumPy loop: symmetric
ones, and ones with an anisotropic or a clipped force, a wind, walls and so on, of known strength.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en._util.files import write_text_atomically
from spacetime_en.data import Task, Trajectories
from spacetime_en.symmetries import questions
from spacetime_en.symmetries.rows import rows_of_windows, sample, typical_distance
from spacetime_en.symmetries.study import ASKED_ABOUT, LEVEL, find_symmetries

RESULTS = Path("results/symmetries/power.json")
PLANTED: tuple[dict[str, float], ...] = (
    *({"wind": 0.1}, {"wind": 0.5}, {"wall": 0.1}, {"wall": 0.5}, {"wall": 2.0}),
    *({"clip": 0.7}, {"clip": 0.5}, {"swirl": 0.1}, {"favourite": 0.1}, {"drag": 0.1}),
    {"trap": 0.5},
)


def world(
    runs: int = 300,
    seed: int = 0,
    dims: int = 2,
    nodes: int = 3,
    anisotropy: float = 0.0,
    wind: float = 0.0,
    drag: float = 0.0,
    field: float = 0.0,
    wall: float = 0.0,
    swirl: float = 0.0,
    favourite: float = 0.0,
    clip: float = np.inf,
    trap: float = 0.0,
    noise: float = 0.02,
    gaps: float = 0.0,
    along_x: bool = False,
    frames: int = 7,
) -> Task:
    """A task of runs of a few nodes that attract each other: four frames in, the next one out.

    Args:
        runs, seed, dims, nodes: of the data set.
        anisotropy: forces along the first axis are stronger by this fraction.
        wind: speed of the air along the first axis, with drag 0.5.
        drag: in still air.
        field: acceleration against the last axis.
        wall: strength of walls beyond |x_1| > 1.
        swirl: rotate all velocities to the left: breaks reflections, boosts and time reversal.
        favourite: node 0 feels forces stronger by this fraction.
        clip: clip each component of the attraction to this: only rotations break.
        trap: strength of a round trap about 0, whose force is the cube of the distance: only
            translations and scale break.
        noise: acceleration that changes from step to step.
        gaps: fraction of the nodes in frames that are not observed.
        along_x: all start with the same velocity, along the first axis: the law stays symmetric.
        frames: of each run.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((runs, nodes, dims))
    v = 0.5 * rng.standard_normal((runs, nodes, dims))
    if along_x:
        v = 0.1 * v + np.eye(dims)[0]
    dt, every = 0.05, 4
    stretch = np.ones(dims)
    stretch[0] += anisotropy
    likes = np.ones((nodes, 1))
    likes[0] += favourite
    air = wind * np.eye(dims)[0]
    frames_x, frames_v = [], []

    def acceleration(x: Any, v: Any) -> Any:
        d = x[:, None] - x[:, :, None]  # from i to j
        pull = (d / (np.square(d).sum(-1, keepdims=True) + 0.5)).sum(2)
        a = likes * stretch * np.clip(pull, -clip, clip) - field * np.eye(dims)[-1]
        a += (0.5 if wind else drag) * (air - v)
        a[..., 0] -= wall * (np.sign(x) * np.maximum(np.abs(x) - 1, 0))[..., 0]
        a -= trap * np.square(x).sum(-1, keepdims=True) * x
        if swirl:
            a[..., :2] += swirl * np.stack([-v[..., 1], v[..., 0]], axis=-1)
        return a

    for step in range(every * (frames - 1) + 1):
        if step % every == 0:
            frames_x.append(x.copy())
            frames_v.append(v.copy())
        jitter = noise * rng.standard_normal(x.shape) / np.sqrt(dt)
        v = v + dt / 2 * (acceleration(x, v) + jitter)
        x = x + dt * v
        v = v + dt / 2 * (acceleration(x, v) + jitter)
    observed = rng.random((runs, frames, nodes)) >= gaps
    made = Trajectories.from_arrays(
        np.stack(frames_x, axis=1),
        np.stack(frames_v, axis=1),
        times=np.arange(frames) * dt * every,
        observed=observed if gaps else None,
    )
    return Task.from_trajectories(made, length=4, stride=1, target_steps=1)


def false_alarms(sets: int, first: int, **options: Any) -> dict[str, Any]:
    """How many of `sets` symmetric worlds raise a false alarm about any symmetry.

    Args:
        sets, first: the seeds.
        options: of the worlds.
    """
    alarms: dict[str, int] = dict.fromkeys(ASKED_ABOUT, 0)
    any_alarm, tested = 0, 0
    true = set(ASKED_ABOUT) - {"scale"}  # (the attraction has a length scale)
    if options.get("noise", 0) > 0.1:
        true -= {"time reversal"}  # (noise without drag heats the particles)
    for seed in range(first, first + sets):
        report = find_symmetries(world(seed=seed, **options))
        found = [f.name for f in report.findings if "broken" in f.verdict and f.name in true]
        tested += 1
        any_alarm += bool(found)
        for name in found:
            alarms[name] += 1
        print(f"set {seed}: {', '.join(found) or 'none'}; {any_alarm} of {tested}", flush=True)
    return {
        "worlds": options,
        "first_seed": first,
        "sets": tested,
        "with_an_alarm": any_alarm,
        "level": LEVEL,
        "by_symmetry": alarms,
    }


def power(strengths: tuple[float, ...], runs: tuple[int, ...], sets: int) -> list[dict[str, Any]]:
    """The fraction of anisotropic worlds in which the test of rotations detects it."""
    rows = []
    for count in runs:
        for strength in strengths:
            found = 0
            for seed in range(sets):
                task = world(runs=count, seed=1_000 + seed, anisotropy=strength)
                sampled = sample(task)
                some = rows_of_windows(sampled, typical_distance(sampled.graph))
                evidence = questions.turning_of(some, identity=False).evidence
                found += evidence.p is not None and evidence.p < LEVEL / len(ASKED_ABOUT)
            rows.append({"anisotropy": strength, "runs": count, "sets": sets, "found": found})
            print(rows[-1], flush=True)
    return rows


def verdicts(planted: Iterable[dict[str, float]], runs: int, sets: int) -> list[dict[str, Any]]:
    """What is called broken, and how often, in worlds with planted violations."""
    rows = []
    for options in planted:
        found: Counter[str] = Counter()
        for seed in range(sets):
            report = find_symmetries(world(runs=runs, seed=2_000 + seed, **options))
            found.update(f.name for f in report.findings if "broken" in f.verdict)
        rows.append({"world": options, "runs": runs, "sets": sets, "broken": dict(found)})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure everything, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=100, help="symmetric data sets")
    parser.add_argument("--first", type=int, default=50_000, help="the first of their seeds")
    parser.add_argument("--repeats", type=int, default=10, help="data sets of each strength")
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 400], help="their sizes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found = {
        "false_alarms": false_alarms(arguments.sets, arguments.first, runs=100),
        "false_alarms_in_noise": false_alarms(arguments.sets, arguments.first, runs=100, noise=0.5),
        "false_alarms_in_one_recording": false_alarms(
            arguments.sets, arguments.first, runs=1, frames=600, noise=0.5
        ),
        "power": power((0.01, 0.03, 0.1, 0.3), tuple(arguments.runs), arguments.repeats),
        "planted": verdicts(PLANTED, 200, arguments.repeats),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(arguments.out, json.dumps(found, indent=1) + "\n")
    print(arguments.out)


if __name__ == "__main__":
    main()
