"""Scenes for the report: observed frames, the true future, and forecasts for several times."""

from __future__ import annotations

import numpy as np

from spacetime_en.data import simulate
from spacetime_en.data.datasets.simulated import Simulated
from spacetime_en.report.scene import Scene
from spacetime_en.reproduce.plan import BASELINES, HORIZONS, MODELS, Data
from spacetime_en.reproduce.tables import Results

FUTURE_FRAMES = 100  # frames that show the future


def make_scenes(results: Results) -> list[Scene]:
    """The windows whose forecasts were kept, with the forecasts of each model's first seed."""
    scale = results.scale
    shown = {
        model: {
            h: result["shown"]["x"]
            for h in HORIZONS
            if (result := results.tested(Data(steps_ahead=h), model)) is not None
            and np.isfinite(np.array(result["shown"]["x"], dtype=float)).all()
        }
        for model in BASELINES
    }
    counts = {len(x) for at in shown.values() for x in at.values()}
    if not counts:
        return []
    task = Simulated("charged")
    stride = task.stride * task.frame_interval
    last = (task.length - 1) * stride
    future = np.linspace(last, last + HORIZONS[-1], FUTURE_FRAMES + 1).astype(int).tolist()
    save = sorted({*range(0, last + 1, stride), *future, *(last + h for h in HORIZONS)})
    sizes = scale.counts(5)
    scenes = []
    for window in range(min(counts)):
        # Trajectory i is keyed by (seed, i): the same as in the task, with more frames.
        run = sizes[0] + sizes[1] + window
        true = simulate(task.system, sum(sizes), save=save, shard=(run, sum(sizes)))
        forecasts = {}
        for model, at in shown.items():
            if at:
                path = np.full((len(HORIZONS), *true.x.shape[2:]), np.nan)
                for place, h in enumerate(HORIZONS):
                    if h in at:
                        path[place] = at[h][window]
                forecasts[MODELS[model].label] = {last: path}
        charge = true.attributes["charge"][0]
        title, ahead = f"test window {window}", np.array(HORIZONS)
        scenes.append(Scene(title, true.steps, true.x[0], ahead, forecasts, charge=charge))
    return scenes
