"""Simulated particles: the paper's charges, with or without noise, gravity and springs."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Count, NonNegativeFloat, PositiveInt
from spacetime_en.data.datasets.dataset import DataSet, cached
from spacetime_en.data.steps import TargetSteps, parse_steps
from spacetime_en.data.task import Task
from spacetime_en.data.windows import Targets

Million = Annotated[int, msgspec.Meta(ge=1, le=10**6)]

MOST_WORK = 10**13  # pair interactions times steps that a task may simulate: hours


@dataclass(frozen=True)
class Simulated(DataSet):
    """Particles that push and pull each other, simulated on first use.

    Args:
        system: charged, gravity or springs.
        nodes: number of nodes N.
        length: number of frames of a window, L.
        stride: frame intervals from one frame of a window to the next.
        target_steps: frame intervals from the last frame of a window to its target, or to several
            along a path: 1000, 100..1000 or 10,100,1000.
        frame_interval: steps of the simulation in a frame interval.
        counts: trajectories for training, validation and test.
        noise: variance of noise on all that is observed.
        noise_seed: of the noise.
        seed: of the trajectories.
        scheme: kick-drift (the paper's), verlet or adaptive.
        targets: with noisy observations, what to measure against: observed or clean. (zero makes a
            task for the audit of published figures, and everything made from it says so.)
    """

    system: Literal["charged", "gravity", "springs"]
    nodes: Million = 5
    length: Million = 10
    stride: PositiveInt = 1
    target_steps: TargetSteps = 1_000
    frame_interval: PositiveInt = 10
    counts: tuple[PositiveInt, PositiveInt, PositiveInt] = (16_000, 2_000, 2_000)
    noise: NonNegativeFloat = 0.0
    noise_seed: Count = 0
    seed: Count = 0
    scheme: Literal["kick-drift", "verlet", "adaptive"] = "kick-drift"
    targets: Targets = "observed"
    needs_scales = False

    def load(self, name: str, cache: Path) -> Task:
        """Simulate one window per trajectory, and split by trajectory."""
        stride = self.stride * self.frame_interval
        ahead = [steps * self.frame_interval for steps in parse_steps(self.target_steps)]
        last, total = (self.length - 1) * stride, sum(self.counts)
        folder = cache / (
            f"{self.system}-N{self.nodes}-L{self.length}x{stride}-H{_named(ahead)}"
            f"-{total}-seed{self.seed}-{self.scheme}"
        )
        steps = total * (last + ahead[-1]) * self.nodes**2
        if steps > MOST_WORK and not folder.exists():
            raise InputError(
                f"task {name!r}: its trajectories are {steps:.1e} steps of pairs of nodes, days of "
                "work; make fewer or shorter ones, or make them apart: spacetime simulate, then "
                "--data."
            )

        def make(progress: Callable[[int], None]) -> None:
            from spacetime_en.data.simulation.simulator import simulate  # imports a compiler

            simulate(
                self.system,
                total,
                nodes=self.nodes,
                save=[*range(0, last + 1, stride), *(last + steps for steps in ahead)],
                seed=self.seed,
                scheme=self.scheme,
                out=folder,
                progress=progress,
            )

        return Task.from_trajectories(
            cached(folder, name, total, make),
            length=self.length,
            stride=self.stride,
            target_steps=self.target_steps,
            frame_interval=self.frame_interval,
            counts=self.counts,
            name=name,
            noise=self.noise,
            noise_seed=self.noise_seed,
            targets=self.targets,
            audit=self.targets == "zero",
        )


def _named(ahead: list[int]) -> str:
    """The target steps in a form short enough for a folder name."""
    if len(ahead) == 1:
        return str(ahead[0])
    others = hashlib.sha256(repr(ahead).encode()).hexdigest()[:8]
    return f"{ahead[0]}to{ahead[-1]}in{len(ahead)}-{others}"
