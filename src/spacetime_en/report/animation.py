"""Animations of forecasts along with the true motion, as GIF, MP4 or an HTML page."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import create_atomically
from spacetime_en._util.progress import silenced
from spacetime_en._util.schema import Count, checked, shortened
from spacetime_en.data.differences import unwrap_paths
from spacetime_en.data.given import GivenWindows
from spacetime_en.data.graphs import newest_or_first
from spacetime_en.data.simulation.simulator import simulate
from spacetime_en.data.simulation.systems import system_of
from spacetime_en.data.task import Task
from spacetime_en.data.trajectories import Trajectories
from spacetime_en.data.windows import Windows
from spacetime_en.evaluation import forecast_in_double
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.report.scene import Positions, Scene, asset, html_page, scenes_of

ANIMATION_ENDINGS = (".gif", ".mp4", ".html")
STILLS = (".png", ".svg", ".pdf")  # see plot_scene
MOST_FRAMES = 100_000
MOST_FORCES = 10**9  # forces to compute to fill in the motion between frames; it takes seconds
SLIDING = 20  # consecutive windows of one run that suffice for an animation of their targets


@checked
def make_scene(models: Mapping[str, Forecaster], task: Task, window: Count, frames: int) -> Scene:
    """The scene around a test window, to be animated.

    If the window's run has many windows, as a recording does, they are shown in sequence: each
    frame has the paths forecast from it, starting with the given window; or, with a single target
    time, the forecast for that frame, along the whole run. Otherwise it is :func:`window_scene`.
    Positions are relative to the task's origin.

    Args:
        models: by display name.
        task: the task whose test windows are used.
        window: the index of the test window.
        frames: the maximum number of frames, not counting the observed ones.
    """
    if not 0 < frames <= MOST_FRAMES:
        raise InputError(f"frames: expected 1 to {MOST_FRAMES:,}, found {shortened(frames)}.")
    windows = task.test
    _check(windows, window)
    if isinstance(windows, GivenWindows):
        return window_scene(models, task, window)
    t = windows.trajectories
    run, first = _place(windows, window)
    own = Windows(
        t,
        windows.length,
        windows.stride,
        windows.target_steps,
        frame_interval=windows.frame_interval,
        runs=np.array([run]),
        # (In a run that is split by time, the test part.)
        steps=(int(t.steps[windows.cut.first[0]]), int(t.steps[windows.cut.ends[-1]])),
        noise=windows.noise,
        noise_seed=windows.noise_seed,
        targets=windows.targets,
        nodes=windows.nodes,
        min_nodes=windows.min_nodes,
        radius=windows.radius,
        k=windows.k,
    ).with_origin(windows.origin)
    if len(own) < SLIDING:
        return window_scene(models, task, window, frames)
    _, places = own.locate()
    last = places[:, own.length - 1]
    if len(own.target_steps) == 1:
        chosen = np.arange(len(own))[:: -(-len(own) // frames)]
    else:
        start = min(int(np.searchsorted(places[:, 0], first)), max(0, len(own) - frames))
        chosen = np.flatnonzero((last >= last[start]) & (last < last[start] + frames))
    return _recording(models, own, chosen, f"{task.label}, {_named(t, run)}")


@checked
def window_scene(
    models: Mapping[str, Forecaster], task: Task, window: Count, frames: int = 200
) -> Scene:
    """The scene of one test window: its observed frames, the motion to its targets, forecasts.

    Simulated data are re-simulated to show the motion between the frames.

    Args:
        models: by display name.
        task: the task whose test windows are used.
        window: the index of the test window.
        frames: the maximum number of frames, not counting the observed ones.
    """
    windows = task.test
    _check(windows, window)
    title = f"{task.label}, test window {window}"
    if isinstance(windows, GivenWindows):  # about which nothing else is known
        graph, target = windows[window]
        made = {name: forecast_in_double(model, graph) for name, model in models.items()}
        return scenes_of(graph, target, made, [title])[0]
    t, L = windows.trajectories, windows.length
    index = np.array([window])
    (run,), (places,) = windows.locate(index)
    last, steps = int(t.steps[places[L - 1]]), t.steps[places]
    ids = windows.ids_of(index)[0]
    ids = np.sort(ids[ids >= 0])
    simulated = _simulated(t, int(run), steps, L, frames, windows.origin)
    if simulated is None:
        between = np.setdiff1d(np.arange(places[L - 1], places[-1]), places)
        between = between[:: -(-len(between) // frames) or 1]
        places = np.union1d(places, between)
        x, nodes = _tracks(t, int(run), int(places[0]), int(places[-1]) + 1, windows.origin)
        shown = t.steps[places], x[places - places[0]][:, np.searchsorted(nodes, ids)]
    else:
        shown = simulated
    forecasts = {
        name: {last: _in_space(_forecasts(model, windows, index, ids)[0], t)}
        for name, model in models.items()
    }
    return Scene(
        title,
        shown[0],
        _in_space(shown[1], t),
        steps[L:] - last,
        forecasts,
        **_look(t, int(run)),
    )


def _recording(
    models: Mapping[str, Forecaster], windows: Windows, chosen: NDArray[np.int64], title: str
) -> Scene:
    """Windows of one run, with forecasts from or for each of their frames."""
    t, L = windows.trajectories, windows.length
    (run, *_), places = windows.locate(chosen)
    first = int(places[:, 0].min())
    x, nodes = _tracks(t, int(run), first, int(places[:, -1].max()) + 1, windows.origin)
    last = places[:, L - 1]
    forecasts = {}
    for name, model in models.items():
        paths = _forecasts(model, windows, chosen, nodes)  # (b, T, P, n)
        if t.box is not None:  # the periodic images that continue the scene's paths
            start, _ = windows[torch.from_numpy(chosen)]
            paths = paths + (x[last - first] - start.unwrapped_x()[:, -1].double().numpy())[:, None]
        steps = t.steps[last].tolist()
        forecasts[name] = {
            step: _in_space(path, t) for step, path in zip(steps, paths, strict=True)
        }
    shown = np.arange(len(x)) if len(windows.target_steps) > 1 else places[:, -1] - first
    span = int(t.steps[places[0, L - 1]] - t.steps[places[0, 0]])
    return Scene(
        title,
        t.steps[first + shown],
        _in_space(x[shown], t),
        t.steps[places[0, L:]] - t.steps[last[0]],
        forecasts,
        tail=span if len(windows.target_steps) > 1 or t.ids is not None else None,
        follow=bool(t.meta.get("edges")),
        **_look(t, int(run)),
    )


def _check(windows: Windows, window: int) -> None:
    if windows.trajectories.x.shape[-1] > 3:
        raise InputError("animate: shows up to three dimensions of space.")
    if window >= len(windows):
        raise InputError(f"window: expected one of the {len(windows):,} test windows.")


def _place(windows: Windows, window: int) -> tuple[int, int]:
    """The run and the first frame of a window."""
    (run,), (places,) = windows.locate(np.array([window]))
    return int(run), int(places[0])


def _named(t: Trajectories, run: int) -> str:
    names = t.meta.get("recordings")
    return f"run {run}" if names is None else str(names[run])


def _simulated(
    t: Trajectories,
    run: int,
    window_steps: NDArray[np.int64],
    length: int,
    frames: int,
    origin: NDArray[np.float64],
) -> tuple[NDArray[np.int64], Positions] | None:
    """Steps and positions of a run from the first frame of a window to its last target.

    None if the data were not simulated.
    """
    last, target = window_steps[length - 1], window_steps[-1]
    # One frame for every observed one, the rest for the motion to the target.
    future = np.linspace(last, target, max(2, frames - len(window_steps) + 2)).astype(np.int64)
    steps = np.union1d(window_steps, future)
    simulated = _simulated_again(t, run, steps)
    return None if simulated is None else (steps, simulated - origin)


def _simulated_again(t: Trajectories, run: int, steps: NDArray[np.int64]) -> Positions | None:
    """Re-simulate a run at some steps, (T, N, n); None if its data were not simulated so."""
    system, _, N, n = system_of(t), *t.x.shape[1:]
    if system is None or int(steps[-1]) * N * N > MOST_FORCES:
        return None
    said: dict[str, Any] = {key: t.meta.get(key) for key in ("num", "seed", "scheme")}
    shard = run, said["num"]
    try:
        simulated = simulate(system, nodes=N, dims=n, save=steps.tolist(), shard=shard, **said)
    except InputError:  # the metadata cannot be right
        return None
    kept, at, there = np.intersect1d(steps, t.steps, return_indices=True)
    x: Positions = np.asarray(simulated.x[0], dtype=float)
    return x if len(kept) and np.allclose(x[at], t.x[run][there], rtol=1e-3) else None


def _tracks(
    t: Trajectories, run: int, first: int, stop: int, origin: NDArray[np.float64]
) -> tuple[Positions, NDArray[np.int64]]:
    """The paths of all nodes of a run that are present in the frames from `first` to `stop`.

    Returns: positions (K, P, n), NaN where a node was not observed, and the ids of the nodes (P,).
    """
    frames = np.arange(first, stop)
    rows = np.full_like(frames, run)
    x = np.asarray(t.x[rows, frames], dtype=float)
    if t.observed is not None:
        x[~t.observed[rows, frames]] = np.nan
    nodes = np.arange(x.shape[1])
    if t.ids is not None:
        ids = t.ids[rows, frames]
        nodes = np.unique(ids[ids >= 0])
        frame, slot = np.nonzero(ids >= 0)
        own = np.full((len(frames), len(nodes), x.shape[2]), np.nan)
        own[frame, np.searchsorted(nodes, ids[frame, slot])] = x[frame, slot]
        x = own
    if t.box is not None:
        there = np.isfinite(x).all(-1)
        filled = np.take_along_axis(x, newest_or_first(there)[..., None], axis=0)
        x = np.where(there[..., None], unwrap_paths(filled, t.box), np.nan)
    return x - origin, nodes


def _forecasts(
    model: Forecaster, windows: Windows, which: NDArray[np.int64], nodes: NDArray[np.int64]
) -> Positions:
    """The forecast positions for some windows, (b, T, P, n); NaN for nodes not in the window.

    Args:
        nodes: the ids of the nodes, in order, (P,).
    """
    parts = []
    for part in np.array_split(which, -(-len(which) // 100)):
        graph, _ = windows[torch.from_numpy(part)]
        x, ids = forecast_in_double(model, graph).x.numpy(), windows.ids_of(part)
        own = np.full((*x.shape[:2], len(nodes), x.shape[3]), np.nan)
        row, place = np.nonzero(ids >= 0)
        own[row, :, np.searchsorted(nodes, ids[row, place])] = x[row, :, place]
        parts.append(own)
    return np.concatenate(parts)


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


def _look(t: Trajectories, run: int) -> dict[str, Any]:
    """Drawing options for the nodes of a run: dimensions, unit, charges, bones."""
    charge = t.attributes.get("charge")
    return {
        "dims": 2 if t.x.shape[-1] < 3 else 3,
        "unit": str(t.meta.get("length_unit") or ""),
        "charge": None if charge is None else np.asarray(charge[run]),
        "bones": [(int(a), int(b)) for a, b in t.meta.get("edges") or []],
    }


# --- files --------------------------------------------------------------------------------------


@checked
def animate(
    scene: Scene, out: Path, fps: int | None = None, progress: Callable[[int], None] | None = None
) -> Path:
    """Write a scene as ``.gif``, ``.mp4`` (needs ffmpeg) or ``.html`` (interactive).

    Args:
        scene: what to show.
        out: the file, which must not exist yet.
        fps: frames per second of a GIF or MP4; None: such that it lasts eight seconds, 5 to 20.
        progress: called with the number of frames drawn since the last call.
    """
    kind = out.suffix.lower()
    if kind not in ANIMATION_ENDINGS:
        raise InputError(
            f"{out}: expected a name that ends in {', '.join(ANIMATION_ENDINGS)}; or, for a still "
            f"picture, in {', '.join(STILLS)}."
        )
    if fps is None:
        fps = min(20, max(5, len(scene.frames) // 8))
    if not 0 < fps <= 100:
        raise InputError(f"fps: expected 1 to 100 frames a second, found {shortened(fps)}.")
    if kind == ".mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{out}: MP4 needs the program ffmpeg; install it, or write a .gif.")
    with create_atomically(out) as part:
        if kind == ".html":
            script = 'theme(); $("title").textContent = DATA.title; view(DATA.scenes);\n'
            data = {"title": scene.title, "scenes": [scene.to_json()]}
            part.write_text(html_page(asset("animation.html"), "", script, data), "utf-8")
        else:
            try:
                with silenced("matplotlib.animation"):  # which repeats ffmpeg's message
                    _film(scene, part, fps, progress)
            except subprocess.CalledProcessError as error:
                lines = str(error.stderr or "").strip().splitlines() or ["it does not say why"]
                why = lines[-1].rpartition("] ")[2]  # (strip the address of ffmpeg's component)
                raise InputError(f"{out}: ffmpeg could not write it ({why}).") from None
    return out


def _film(scene: Scene, path: Path, fps: int, progress: Callable[[int], None] | None) -> None:
    # Not imported above: scenes are also used in browsers, without matplotlib.
    from matplotlib.animation import FFMpegWriter, PillowWriter

    from spacetime_en.report.drawing import add_legend, draw_frame, figure_for

    writer = PillowWriter(fps) if path.suffix.lower() == ".gif" else FFMpegWriter(fps)
    figure, axes = figure_for(scene)
    add_legend(figure, list(scene.forecasts))
    with warnings.catch_warnings(), writer.saving(figure, str(path), dpi=100):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn
        steps = scene.steps[scene.frames].tolist()
        draw_frame(axes, scene, steps[0])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # keep the first frame's layout: nothing jumps
        for step in steps:
            draw_frame(axes, scene, step)
            writer.grab_frame()
            if progress is not None:
                progress(1)
