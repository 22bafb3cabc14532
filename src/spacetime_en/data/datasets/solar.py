"""The solar system from JPL's ephemeris DE421 (the extra ``solar``)."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spacetime_en._util.errors import InputError, require
from spacetime_en._util.schema import PositiveInt
from spacetime_en.data.datasets.dataset import DataSet
from spacetime_en.data.steps import TargetSteps, parse_steps
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories

AU = 149_597_870.7  # km
# Masses in solar masses; planets include their moons, but the Moon is separate.
BODIES = {
    "sun": 1.0,
    "mercury": 1 / 6_023_597.4,
    "venus": 1 / 408_523.72,
    "earth": 1 / 332_946.05,
    "moon": 1 / 27_068_703.0,
    "mars": 1 / 3_098_703.6,
    "jupiter": 1 / 1_047.3486,
    "saturn": 1 / 3_497.9018,
    "uranus": 1 / 22_902.98,
    "neptune": 1 / 19_412.26,
}


@dataclass(frozen=True)
class SolarSystem(DataSet):
    """The Sun, the planets and the Moon from 1900 to 2037 (the extra ``solar``), split by time.

    Args:
        length: number of frames of a window, L.
        stride: days from one frame of a window to the next.
        target_steps: days from the last frame of a window to its target, or to several along a
            path: 30, 1..30 or 10,20,30.
    """

    length: PositiveInt = 10
    stride: PositiveInt = 10
    target_steps: TargetSteps = 30

    def load(self, name: str, cache: Path) -> Task:
        """Evaluate the ephemeris on the days that the windows need."""
        data = solar_system(every=math.gcd(self.stride, *parse_steps(self.target_steps)))
        return Task.from_trajectories(data, name=name, frame_interval=1, **self.settings)


def solar_system(
    first_day: float = 2_415_100.5, days: int = 50_000, every: int = 10
) -> Trajectories:
    """The Sun, the planets and the Moon as one run, barycentric, in au and days.

    Args:
        first_day: Julian day of the first frame, TDB; DE421 covers 1900 to 2050.
        days: length of the run.
        every: days between frames.
    """
    ephem = require("jplephem.ephem", "solar")
    ephemeris = ephem.Ephemeris(require("de421", "solar"))
    steps = np.arange(0, days + 1, every)
    julian = first_day + steps
    if julian[0] < ephemeris.jalpha or julian[-1] > ephemeris.jomega:
        raise InputError(
            f"days: DE421 covers Julian days {ephemeris.jalpha} to {ephemeris.jomega}, asked were "
            f"{julian[0]} to {julian[-1]}."
        )
    tables = {*BODIES, "earthmoon"} - {"earth"}
    states = {name: ephemeris.position_and_velocity(name, julian) for name in tables}
    # The Moon is given relative to the Earth, and the Earth via their common barycentre.
    share = 1 / (1 + ephemeris.EMRAT)
    (moon_x, moon_v), (both_x, both_v) = states.pop("moon"), states.pop("earthmoon")
    states["earth"] = (both_x - share * moon_x, both_v - share * moon_v)
    states["moon"] = (states["earth"][0] + moon_x, states["earth"][1] + moon_v)
    x, v = (
        np.stack([np.asarray(states[name][k]).T for name in BODIES], axis=1) / AU for k in (0, 1)
    )
    return Trajectories.from_arrays(
        x,
        v,
        times=steps.astype(float),
        steps=steps,
        attributes={"mass": np.array(list(BODIES.values()))},
        meta={
            "source": "DE421",
            "length_unit": "au",
            "time_unit": "day",
            "bodies": list(BODIES),
            "first_day": first_day,
        },
    )
