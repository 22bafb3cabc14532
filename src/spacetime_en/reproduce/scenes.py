"""Scenes to look at: the past, the whole true future, and forecasts for several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacetime_en.data import TASKS, simulate
from spacetime_en.data.tasks import Simulated
from spacetime_en.reproduce.plan import BASELINES, HORIZONS, MODELS, Data
from spacetime_en.reproduce.tables import Results

FRAMES = 100  # of the future


@dataclass(frozen=True)
class Scene:
    """One test window of the paper's task at N = 5.

    Args:
        window: its number among the test windows.
        steps: of the frames, (T,).
        last_step: of the last observed frame.
        x: true positions, (T, N, 3).
        charge: of the particles, (N,).
        forecasts: by model, then by step, positions (N, 3).
    """

    window: int
    steps: NDArray[np.int64]
    last_step: int
    x: NDArray[np.float64]
    charge: NDArray[np.float64]
    forecasts: dict[str, dict[int, Any]]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, with four digits."""
        return {
            "window": self.window,
            "steps": self.steps.tolist(),
            "lastStep": self.last_step,
            "x": np.round(self.x, 4).tolist(),
            "charge": self.charge.tolist(),
            "forecasts": {
                name: {str(step): np.round(x, 4).tolist() for step, x in at.items()}
                for name, at in self.forecasts.items()
            },
        }


def make_scenes(results: Results) -> list[Scene]:
    """The windows whose forecasts were kept, each model's first seed at every horizon it has."""
    scale = results.scale
    shown = {
        model: {
            h: result["shown"]["x"]
            for h in HORIZONS
            if (result := results.tested(Data(horizon=h), model)) is not None
            and np.isfinite(np.array(result["shown"]["x"], dtype=float)).all()
        }
        for model in BASELINES
    }
    counts = {len(x) for at in shown.values() for x in at.values()}
    if not counts:
        return []
    task = TASKS["charged"]
    assert isinstance(task, Simulated)
    last = (task.length - 1) * task.stride
    future = np.unique(np.linspace(last, last + HORIZONS[-1], FRAMES + 1).astype(int)).tolist()
    save = sorted({*range(0, last + 1, task.stride), *future, *(last + h for h in HORIZONS)})
    sizes = scale.counts(5)
    scenes = []
    for window in range(min(counts)):
        # Trajectory i is keyed by (seed, i): the one that the task has, with more frames.
        run = sizes[0] + sizes[1] + window
        made = simulate(task.system, sum(sizes), save=save, shard=(run, sum(sizes)))
        forecasts = {
            MODELS[model].label: {last + h: x[window] for h, x in at.items()}
            for model, at in shown.items()
            if at
        }
        charge = made.attributes["charge"][0]
        scenes.append(Scene(window, made.steps, last, made.x[0], charge, forecasts))
    return scenes
