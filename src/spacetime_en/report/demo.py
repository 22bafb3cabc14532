"""The demo behind ``spacetime demo``: train four small models, compare them, draw forecasts."""

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spacetime_en import geometry
from spacetime_en._util.errors import InputError
from spacetime_en._util.files import refuse_existing
from spacetime_en._util.terminal import Terminal
from spacetime_en._util.threads import one_thread
from spacetime_en.data import Task
from spacetime_en.evaluation import Evaluation, evaluate
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.report.animation import window_scene
from spacetime_en.report.drawing import draw_panels
from spacetime_en.report.plots import plot_equivariance, save_figure
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import FACTS_FILE
from spacetime_en.runs.training import train
from spacetime_en.training.settings import TrainingSettings

# Small enough for two minutes on one core; every model sees the same data in the same order.
DEMO_MODELS: dict[str, dict[str, Any]] = {
    "set-2": {"hidden": 32},
    "set": {"hidden": 32, "blocks": 2},
    "egnn": {"hidden": 32},
    "mlp": {"hidden": 64},
}
TASK = {"name": "charged", "counts": (2000, 300, 300), "target_steps": 100}
TRAINING = TrainingSettings(
    lr=3e-3, batch_size=50, steps=600, warmup=0.05, schedule="cosine", validate_every=100
)

PICTURES = ("forecasts.png", "equivariance.png")
HEAD = ("model", "parameters", "position", "median", "p90", "velocity", "rotation", "s")


@one_thread()
def run_demo(out: Path, seed: int, steps: int = TRAINING.steps or 0) -> dict[str, dict[str, Any]]:
    """Train small models, ours and the paper's; print a table of errors; draw forecasts.

    Args:
        out: folder for the runs and the figures; finished runs are not repeated.
        seed: of the weights and the order of the windows.
        steps: number of training steps of each model.
    Returns: the evaluation report of each model.
    """
    terminal = Terminal()
    ours = {*DEMO_MODELS, *PICTURES}
    for name in os.listdir(out) if out.is_dir() else ():
        if name not in ours and not name.startswith("."):
            raise InputError(f"{out}: holds {name}; choose another folder for the demo.")
    first = out / next(iter(DEMO_MODELS))
    if not (first / FACTS_FILE).exists():  # existing figures are not from the demo
        for name in PICTURES:
            refuse_existing(out / name)
    terminal.print(
        "Five charged particles: ten frames in, positions 1,000 steps later out.\n"
        f"Simulating 2,600 trajectories, then training each model for {steps} steps at the\n"
        "same learning rate: about two minutes in all, on one core."
    )
    table: list[list[str]] = []
    reports, trained, evaluations = {}, {}, {}
    training = dataclasses.replace(TRAINING, seed=seed, steps=steps)
    for preset, settings in DEMO_MODELS.items():
        config = Config(preset, settings, TASK, training)
        run = train(config, out / preset, resume=True)
        task = config.load_task()
        trained[preset] = run.model()
        evaluations[preset] = evaluate(trained[preset], task)
        report = reports[preset] = evaluations[preset].report
        rotation = f"{report['equivariance_error']['rotation']:.0e}"
        seconds = f"{run.load('last').progress.time:.0f}"
        table.append([preset, f"{report['parameters']:,}", *_cells(report), rotation, seconds])
    table += [
        [name.replace("_", " "), "0", *_cells(reports["set-2"][name]), "", ""]
        for name in ("straight_line", "last_frame")
    ]
    terminal.table(HEAD, table, "MSE per coordinate on 300 test windows")

    windows = _typical(evaluations["set-2"])
    forecasts_path, equivariance_path = (out / name for name in PICTURES)
    draw_forecasts(trained, task, windows, forecasts_path)
    graph, _ = task.test[windows]
    q = geometry.random_rotation(3, torch.Generator().manual_seed(seed))
    plot_equivariance(trained["set"], graph, q, equivariance_path)
    terminal.say(f"Figures: {forecasts_path}, {equivariance_path}")
    terminal.say(
        "Next (the commands are in .venv/bin; see docs/training.md):\n"
        f"  spacetime evaluate {shlex.quote(str(out / 'set-2'))}\n"
        f"  tensorboard --logdir {shlex.quote(str(out))}\n"
        "  spacetime train set --task charged --out runs/set     # the paper's task, its settings\n"
        "  spacetime data import FILE --out data/mine            # your own data\n"
        "  spacetime train set-2 --data data/mine --out runs/mine"
    )
    return reports


def draw_forecasts(
    models: Mapping[str, Forecaster], task: Task, windows: Sequence[int], path: Path
) -> Path:
    """Draw test windows, one per row, with the models' forecasts, one per column."""
    scenes = []
    for window in windows:
        whole = window_scene(models, task, window)
        scenes += [
            dataclasses.replace(whole, title=name, forecasts={"forecast": forecast})
            for name, forecast in whole.forecasts.items()
        ]
    return save_figure(draw_panels(scenes, len(models), 3.2), path, dpi=110)


def _cells(report: dict[str, Any]) -> list[str]:
    position = [report["position_mse"][key] for key in ("mean", "median", "p90")]
    return [f"{value:.3g}" for value in (*position, report["velocity_mse"]["mean"])]


def _typical(evaluation: Evaluation, count: int = 2) -> list[int]:
    """Test windows with errors near the median, rather than the luckiest ones."""
    order = evaluation.errors["model"].position.argsort()
    middle = len(order) // 2
    return [int(row) for row in order[middle : middle + count]]
