"""Animations of forecasts beside the true motion, as GIF, MP4 or an HTML page."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import create_atomically
from spacetime_en._util.schema import Count, checked, shortened
from spacetime_en.data.graphs import states_at
from spacetime_en.data.simulation.simulator import simulate
from spacetime_en.data.simulation.systems import SYSTEMS
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows
from spacetime_en.evaluation import forecast_in_double
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.report.drawing import add_legend, draw_frame, figure_for
from spacetime_en.report.scene import Positions, Scene, asset, page

ENDINGS = (".gif", ".mp4", ".html")
MOST_FRAMES = 100_000
SLIDING = 20  # consecutive windows of one run that are enough for an animation of their targets


@checked
def make_scene(models: Mapping[str, Forecaster], task: Task, window: Count, frames: int) -> Scene:
    """The scene of a test window.

    If the window's run has many windows, as a recording does, they are shown one after the other:
    each frame has the truth and the forecast for it. Otherwise the observed frames are followed by
    the one target, and by the simulated motion in between if the data are simulated. Positions are
    relative to the task's origin.

    Args:
        models: by the name to show.
        task: the task whose test windows are used.
        window: the index of the test window.
        frames: the maximum number of frames, not counting the observed ones.
    """
    windows = task.test
    if not 0 < frames <= MOST_FRAMES:
        raise InputError(f"frames: expected 1 to {MOST_FRAMES:,}, found {shortened(frames)}.")
    if windows.trajectories.x.shape[-1] > 3:
        raise InputError("animate: shows up to three dimensions of space.")
    if window >= len(windows):
        raise InputError(f"window: expected one of the {len(windows):,} test windows.")
    run = int(windows.locate(np.array([window]))[0][0])
    t = windows.trajectories
    own = Windows(
        t,
        windows.length,
        windows.stride,
        windows.target_steps,
        frame_interval=windows.frame_interval,
        runs=np.array([run]),
        # (Of a run that is split by time, the part that is the test's.)
        steps=(int(t.steps[windows.cut.first[0]]), int(t.steps[windows.cut.ends[-1]])),
        noise=windows.noise,
        noise_seed=windows.noise_seed,
        targets=windows.targets,
        radius=windows.radius,
        k=windows.k,
    ).with_origin(windows.origin)
    if len(own) >= SLIDING:
        return _recording(models, own, frames, f"{task.label}, run {run}")
    return _window(models, windows, window, frames, f"{task.label}, test window {window}")


def _recording(
    models: Mapping[str, Forecaster], windows: Windows, frames: int, title: str
) -> Scene:
    """One run from its first target on, each frame with the forecast for it."""
    t = windows.trajectories
    (run, *_), places = windows.locate()
    targets = places[:, -1]
    chosen = np.arange(len(windows))[:: -(-len(windows) // frames)]
    forecasts = {
        name: {
            int(t.steps[target]): _in_space(x, t)
            for target, x in zip(targets[chosen], _forecasts(model, windows, chosen), strict=True)
        }
        for name, model in models.items()
    }
    x = _in_space(_truths(windows, chosen), t)
    steps = t.steps[targets[chosen]]
    nodes = _charge_and_bones(t, int(run))
    follow = bool(t.meta.get("edges"))
    return Scene(title, steps, int(steps[0]) - 1, x, forecasts, *nodes, follow=follow)


def _window(
    models: Mapping[str, Forecaster], windows: Windows, window: int, frames: int, title: str
) -> Scene:
    """One window: its observed frames, the motion to its target, and the forecasts."""
    t = windows.trajectories
    (run,), (places,) = windows.locate(np.array([window]))
    window_steps = t.steps[places]
    steps, x = _between(t, int(run), window_steps, frames, windows.origin)
    *_, last, target = window_steps.tolist()
    forecasts = {
        name: {target: _in_space(_forecasts(model, windows, np.array([window]))[0], t)}
        for name, model in models.items()
    }
    nodes = _charge_and_bones(t, int(run))
    return Scene(title, steps, last, _in_space(x, t), forecasts, *nodes)


def _between(
    t: Trajectories,
    run: int,
    window_steps: NDArray[np.int64],
    frames: int,
    origin: NDArray[np.float64],
) -> tuple[NDArray[np.int64], Positions]:
    """Steps and positions of a run from the first frame of a window to its target."""
    last, target = window_steps[-2:]
    # One frame for every observed one, the rest for the motion to the target.
    future = np.linspace(last, target, max(2, frames - len(window_steps) + 2)).astype(np.int64)
    steps = np.unique(np.concatenate([window_steps, future]))
    system = t.meta.get("system")
    if system in SYSTEMS and {"num", "seed", "scheme"} <= set(t.meta):
        simulated = simulate(
            system,
            t.meta["num"],
            nodes=t.x.shape[2],
            dims=t.x.shape[3],
            save=steps.tolist(),
            seed=t.meta["seed"],
            scheme=t.meta["scheme"],
            shard=(run, t.meta["num"]),
        )
        return steps, np.asarray(simulated.x[0], dtype=float) - origin
    between = t.steps[(t.steps > last) & (t.steps < target)]
    steps = np.unique(np.concatenate([window_steps, between[:: -(-len(between) // frames) or 1]]))
    places = np.searchsorted(t.steps, steps)
    return steps, states_at(t, np.array([run]), places[None], origin)[0][0]


def _truths(windows: Windows, which: NDArray[np.int64]) -> Positions:
    """The target positions of some windows of one run, (b, N, n)."""
    t = windows.trajectories
    if t.box is not None:  # the periodic images that the unwrapped paths lead to, as in forecasts
        target: Positions = windows[torch.from_numpy(which)][1].x.double().numpy()
        return target
    (run, *_), places = windows.locate(which)
    return np.asarray(np.asarray(t.x[run])[places[:, -1]] - windows.origin)


def _forecasts(model: Forecaster, windows: Windows, which: NDArray[np.int64]) -> Positions:
    """The forecast positions for some windows, (b, N, n)."""
    parts = np.array_split(which, -(-len(which) // 100))
    graphs = (windows[torch.from_numpy(part)][0] for part in parts)
    return np.concatenate([forecast_in_double(model, graph).x.numpy() for graph in graphs])


def _in_space(x: Any, t: Trajectories) -> Positions:
    """Positions (..., n) as (..., 3) with z up."""
    flat: Positions = np.asarray(x, dtype=float)
    if flat.shape[-1] < 3:
        return np.concatenate([flat, np.zeros((*flat.shape[:-1], 3 - flat.shape[-1]))], axis=-1)
    if t.meta.get("up") is None:
        return flat
    z = np.asarray(t.meta["up"], dtype=float)
    z = z / np.linalg.norm(z)
    first = np.eye(3)[0 if abs(z[0]) < 0.9 else 1]
    across = first - (first @ z) * z
    across /= np.linalg.norm(across)
    upright: Positions = flat @ np.stack([across, np.cross(z, across), z], axis=1)
    return upright


def _charge_and_bones(t: Trajectories, run: int) -> tuple[Positions | None, list[tuple[int, int]]]:
    charge = np.asarray(t.attributes["charge"][run]) if "charge" in t.attributes else None
    return charge, [(int(a), int(b)) for a, b in t.meta.get("edges", [])]


# --- files --------------------------------------------------------------------------------------


@checked
def animate(
    scene: Scene, out: Path, fps: int = 20, progress: Callable[[int], None] | None = None
) -> Path:
    """Write a scene as ``.gif``, ``.mp4`` (needs ffmpeg) or ``.html`` (interactive, in 3-D).

    Args:
        scene: what to show.
        out: the file, which must not exist yet.
        fps: frames per second of a GIF or MP4.
        progress: called with the number of frames drawn since the last call.
    Returns: `out`.
    """
    kind = out.suffix.lower()
    if kind not in ENDINGS:
        raise InputError(f"{out}: expected a name that ends in {', '.join(ENDINGS)}.")
    if not 0 < fps <= 100:
        raise InputError(f"fps: expected 1 to 100 frames a second, found {shortened(fps)}.")
    if kind == ".mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{out}: MP4 needs the program ffmpeg; install it, or write a .gif.")
    with create_atomically(out) as part:
        if kind == ".html":
            script = 'theme(); $("title").textContent = DATA.title; view(DATA.scenes);\n'
            data = {"title": scene.title, "scenes": [scene.to_json()]}
            part.write_text(page(asset("animation.html"), "", script, data), "utf-8")
        else:
            writer = PillowWriter(fps) if kind == ".gif" else FFMpegWriter(fps)
            try:
                _film(writer, scene, part, progress)
            except subprocess.CalledProcessError as error:
                lines = str(error.stderr or "").strip().splitlines() or ["it does not say why"]
                raise InputError(f"{out}: ffmpeg could not write it ({lines[-1]}).") from None
    return out


def _film(
    writer: AbstractMovieWriter, scene: Scene, path: Path, progress: Callable[[int], None] | None
) -> None:
    figure, axes = figure_for(scene)
    add_legend(figure, list(scene.forecasts))
    with warnings.catch_warnings(), writer.saving(figure, str(path), dpi=100):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn
        steps = scene.steps[scene.frames].tolist()
        draw_frame(axes, scene, steps[0])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout of the first frame: nothing jumps
        for step in steps:
            draw_frame(axes, scene, step)
            writer.grab_frame()
            if progress is not None:
                progress(1)
