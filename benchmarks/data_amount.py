"""Equivariance built in, learned from rotated windows, or absent: error against training data.

    python -m benchmarks.data_amount                              # everything, an hour per seed
    python -m benchmarks.data_amount --windows 100 400 --models set-2 transformer --budget 30s

Charged particles, N = 5, 1,000 steps ahead. Every model is trained on the first n windows for the
same processor time, at the best of three learning rates (trials of a tenth of the time), and keeps
the weights that did best on the same 2,000 validation windows. Each result is a JSON file in
results/data_amount, which is not recomputed; the figure is drawn from all existing results.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import torch

from benchmarks.general import account, trained
from spacetime_en._util.files import write_text_atomically
from spacetime_en.data import Task, Windows
from spacetime_en.evaluation import RIVALS, evaluate
from spacetime_en.report.plots import MARKERS, model_colour, new_figure, save_figure
from spacetime_en.runs.config import Config
from spacetime_en.training.settings import TrainingSettings, preset_defaults

RESULTS = Path("results/data_amount")
TASK = {"name": "charged", "target_steps": 100}
VALIDATE_EVERY = 100  # steps: a pass over 100 windows is one


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A preset with its changes from the defaults, the learning rates to try, and a name."""

    preset: str
    label: str
    rates: tuple[float, ...]
    model: dict[str, Any] = dataclasses.field(default_factory=dict)
    training: dict[str, Any] = dataclasses.field(default_factory=dict)


CONTESTANTS = {
    "set-2": Contestant("set-2", "SET-2", (2e-3, 4e-3, 8e-3)),
    "transformer": Contestant(
        "transformer", "transformer, rotated windows", (2e-3, 4e-3, 8e-3), {}, {"augment": True}
    ),
    "transformer-plain": Contestant(
        "transformer", "transformer", (2e-3, 4e-3, 8e-3), {}, {"augment": False}
    ),
    # (It corrects the same base as the others.)
    "egnn": Contestant("egnn", "EGNN", (5e-4, 1e-3, 2e-3), {"base": "auto"}),
}


def result(name: str, windows: int, seed: int, budget: str, task: Task, runs: Path) -> Path:
    """Train on the first windows and evaluate, unless already done; returns the result's file."""
    path = RESULTS / f"{name}--{windows}--seed{seed}.json"
    if path.exists():
        return path
    one = CONTESTANTS[name]
    ours = preset_defaults(one.preset, TASK["name"], "ours")
    settings = ours.training | one.training
    settings |= {"max_time": budget, "clock": "cpu", "validate_every": VALIDATE_EVERY, "seed": seed}
    config = Config(one.preset, ours.model | one.model, TASK, TrainingSettings(**settings))
    part = first_windows(task, windows)
    run, trials = trained(config, runs / path.stem, list(one.rates), part)
    found = {
        "model": name,
        "windows": windows,
        "seed": seed,
        "command": f"python -m benchmarks.data_amount --windows {windows} --models {name} "
        f"--seeds {seed} --budget {budget}",
        **account(run, trials),
        "evaluation": evaluate(run.model(), part).report,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(found, indent=1) + "\n")
    return path


def first_windows(task: Task, windows: int) -> Task:
    """The task with only the first training windows, one from each trajectory."""
    whole = task.train
    first = Windows(
        whole.trajectories,
        whole.length,
        whole.stride,
        whole.target_steps,
        frame_interval=whole.frame_interval,
        runs=whole.runs[:windows],
    )
    return dataclasses.replace(task, train=first)


def line(path: Path) -> str:
    """A result on one line."""
    found = json.loads(path.read_text())
    e = found["evaluation"]
    x, v = e["position_mse"], e["velocity_mse"]
    return (
        f"{found['model']:18} {found['windows']:6} windows: {x['mean']:.4g} ± "
        f"{x['standard_error']:.2g} / {x['median']:.3g} / {x['p90']:.3g}  v {v['mean']:.3g}  "
        f"base {found['base']}  lr {found['training']['lr']:g}  {found['steps']} steps, best at "
        f"{found['best_step']}"
    )


def draw(folder: Path) -> Path:
    """Draw all results in a folder: mean and median test error against windows."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    figure = new_figure(9.2, 4.0)
    for place, statistic in enumerate(("mean", "median"), start=1):
        axes: Any = figure.add_subplot(1, 2, place)
        for k, (name, one) in enumerate(CONTESTANTS.items()):
            errors: dict[int, list[float]] = {}
            for each in found:
                if each["model"] == name:
                    error = each["evaluation"]["position_mse"][statistic]
                    errors.setdefault(each["windows"], []).append(error)
            if not errors:
                continue
            counts = sorted(errors)
            # (The geometric mean over seeds: the axis is logarithmic.)
            means = [math.exp(sum(map(math.log, errors[n])) / len(errors[n])) for n in counts]
            style: dict[str, Any] = {"color": model_colour(k), "marker": MARKERS[k]}
            axes.plot(counts, means, label=one.label, linewidth=1.8, markersize=5, **style)
            for n in counts:  # every seed
                axes.scatter([n] * len(errors[n]), errors[n], s=9, alpha=0.5, color=model_colour(k))
        trivial = [
            min(each["evaluation"][rival][statistic] for rival in RIVALS if rival != "ridge")
            for each in found
        ]
        axes.axhline(min(trivial), color="0.5", linestyle=":", label="best trivial forecast")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("training windows")
        axes.set_ylabel(f"{statistic} position error (MSE, test)")
        axes.spines[["top", "right"]].set_visible(False)
        if place == 1:
            axes.legend(frameon=False, fontsize=8)
    return save_figure(figure, folder / "data_amount.svg", metadata={"Date": None})


def main() -> None:
    """Compute the requested results, print them, and draw all existing ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", nargs="+", type=int, default=[100, 400, 1600, 16_000])
    parser.add_argument("--models", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--budget", default="2m", help="processor time of each training")
    parser.add_argument("--runs", type=Path, default=Path("runs/data_amount"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = Config("set-2", {}, TASK, TrainingSettings()).load_task()
    for seed in options.seeds:
        for windows in options.windows:
            for name in options.models:
                path = result(name, windows, seed, options.budget, task, options.runs)
                print(line(path), flush=True)
    print(draw(RESULTS))


if __name__ == "__main__":
    main()
