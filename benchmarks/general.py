"""SET-2 and its rivals on one row of data sets after another, three seeds, equal processor time.

    python -m benchmarks.general                                  # every row of SET-2, hours
    python -m benchmarks.general charged-1000 zara1 --seeds 0 1
    python -m benchmarks.general springs --preset egnn --rates 1e-3 3e-3 1e-2

One thread, processor time. A result is a JSON file in results/general, which is not made again; a
training that was stopped goes on where it was. Rates, where several are given, are compared on
validation windows in trials of a tenth of the time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import torch

from spacetime_en._util.files import write_text_atomically
from spacetime_en.data import Task
from spacetime_en.evaluation import evaluate
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.runs.config import Config
from spacetime_en.runs.training import train
from spacetime_en.testing import equivariance_errors
from spacetime_en.training.settings import TrainingSettings, preset_defaults

RESULTS = Path("results/general")
SCENES = ("eth", "hotel", "univ", "zara1", "zara2")
# Simulations of another seed than those in which defaults were compared.
FRESH = {"seed": 1}
# Task, its settings, settings of SET-2 that differ, and the budget.
ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "charged-1000": ("charged", {"target_steps": 100, **FRESH}, {}, "5m"),
    "charged-10000": ("charged", {"target_steps": 1000, **FRESH}, {}, "5m"),
    **{scene: (scene, {}, {}, "5m") for scene in SCENES},
    "walk": ("mocap-walk", {}, {"named": True}, "20m"),
    "basketball": ("mocap-basketball", {}, {"named": True}, "20m"),
    "noisy": ("charged-noisy", {"target_steps": 1000, **FRESH}, {}, "5m"),
    "springs": ("springs", FRESH, {}, "5m"),
    "gravity": ("gravity", FRESH, {}, "5m"),
    "egnn-nbody": ("egnn-nbody", {}, {}, "1h"),
    **{f"{scene}-samples": (scene, {}, {"samples": 20}, "5m") for scene in SCENES},
    "charged-10000-n20": ("charged", {"target_steps": 1000, "nodes": 20, **FRESH}, {}, "10m"),
    "charged-10000-n30": ("charged", {"target_steps": 1000, "nodes": 30, **FRESH}, {}, "10m"),
}
CHECKED = 200  # test windows whose symmetry is measured


def result(row: str, preset: str, seed: int, rates: list[float], runs: Path) -> Path:
    """Train and evaluate, unless it is done; the file with what came out."""
    path = RESULTS / f"{row}--{preset}--seed{seed}.json"
    if path.exists():
        return path
    name, task_settings, model_settings, budget = ROWS[row]
    settings = preset_defaults(preset, name, "ours").training
    settings = settings | {"max_time": budget, "clock": "cpu", "seed": seed}
    model = (model_settings if preset == "set-2" else {}) | preset_defaults(preset, name).model
    config = Config(preset, model, {"name": name, **task_settings}, TrainingSettings(**settings))
    trials = {}
    if len(rates) > 1:
        for rate in rates:
            tenth = f"{_minutes(budget) * 6:g}s"
            trial = dataclasses.replace(config.training, lr=rate, max_time=tenth)
            run = train(
                dataclasses.replace(config, training=trial),
                runs / f"{row}--{preset}--seed{seed}--{rate:g}",
                resume=True,
            )
            trials[rate] = run.load("best").progress.best
    if rates:
        lr = min(trials, key=trials.__getitem__) if trials else rates[0]
        config = dataclasses.replace(config, training=dataclasses.replace(config.training, lr=lr))
    run = train(config, runs / f"{row}--{preset}--seed{seed}", resume=True)
    trained, task, last = run.model(), config.load_task(), run.load("last").progress
    found = {
        "row": row,
        "preset": preset,
        "seed": seed,
        "command": f"python -m benchmarks.general {row} --preset {preset} --seeds {seed}",
        "machine": f"one thread, {torch.backends.cpu.get_cpu_capability()}, {platform.system()}",
        "training": run.config.to_dict()["training"],
        "rates_tried": trials,
        "steps": last.step,
        "seconds": last.time,
        "best_step": last.best_step,
        "val_position_mse": last.best,
        "base": getattr(trained, "base_name", None),
        "evaluation": evaluate(trained, task).report,
        "worst_equivariance_error": {
            str(dtype).removeprefix("torch."): _worst(trained.to(dtype), task, dtype)
            for dtype in (torch.float64, torch.float32)
        },
    }
    if name == "charged-noisy":
        clean = dataclasses.replace(config, task={**config.task, "targets": "clean"}).load_task()
        found["against_clean_targets"] = evaluate(trained, clean).report
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(found, indent=1))
    return path


def _minutes(budget: str) -> float:
    return float(budget[:-1]) * {"m": 1, "h": 60}[budget[-1]]


def _worst(model: Forecaster, task: Task, dtype: torch.dtype) -> dict[str, float]:
    """The largest equivariance errors over test windows, each measured by itself."""
    worst: dict[str, float] = {}
    step = max(1, len(task.test) // CHECKED)
    for row in range(0, min(len(task.test), CHECKED * step), step):
        graph, _ = task.test[row : row + 1]
        errors = equivariance_errors(model.eval(), graph.to(dtype), max_translation=10.0)
        for what, error in errors._asdict().items():
            worst[what] = max(worst.get(what, 0.0), error)
    return worst


def line(path: Path) -> str:
    """A result in one line."""
    found = json.loads(path.read_text())
    e = found.get("against_clean_targets", found["evaluation"])
    x, v = e["position_mse"], e["velocity_mse"]
    paths = f"  ADE {e['ade']:.3f} FDE {e['fde']:.3f}" if e.get("ade") else ""
    best = f"  best of {e['best_of']['k']} {e['best_of']}" if e.get("best_of") else ""
    turned = found["worst_equivariance_error"]["float32"]["rotation"]
    return (
        f"{path.stem}: {x['mean']:.4g} ± {x['standard_error']:.2g} / {x['median']:.3g} / "
        f"{x['p90']:.3g}  v {v['mean']:.3g}{paths}{best}  rotation {turned:.0e}  base "
        f"{found['base']}  {found['steps']} steps, best at {found['best_step']}"
    )


def main() -> None:
    """Make the results that are asked for, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), help=", ".join(ROWS))
    parser.add_argument("--preset", default="set-2")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rates", nargs="+", type=float, default=[])
    parser.add_argument("--runs", type=Path, default=Path("runs/general"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for row in options.rows:
        for seed in options.seeds:
            print(line(result(row, options.preset, seed, options.rates, options.runs)), flush=True)


if __name__ == "__main__":
    main()
