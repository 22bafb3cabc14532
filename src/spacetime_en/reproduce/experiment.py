"""Carry out one experiment: train, test, and write what came out as one JSON file."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import write_atomically
from spacetime_en.data import Task
from spacetime_en.evaluation import TRIVIAL_FORECASTS, evaluate, run
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.models.set import SET
from spacetime_en.reproduce.plan import MODELS, Experiment, Scale
from spacetime_en.reproduce.published import centroid_variance
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import environment, learning_curve
from spacetime_en.runs.training import train

SHOWN = 8  # test windows whose forecasts are kept, the first ones: no choice of lucky ones
Result = dict[str, Any]
Tell = Callable[[float, str], None]


def path_of(folder: Path, experiment: Experiment) -> Path:
    """Where the result of an experiment is."""
    return folder / "experiments" / f"{experiment.name}.json"


def read_result(folder: Path, experiment: Experiment) -> Result | None:
    """The result of an experiment, if there is one."""
    path = path_of(folder, experiment)
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, ValueError, TypeError) as error:
        raise InputError(f"{path}: is no result ({error}); delete it to make it again.") from None


def checked_result(folder: Path, experiment: Experiment, scale: Scale) -> Result | None:
    """The same; refuses a result that was made with other settings than the plan's."""
    result = read_result(folder, experiment)
    if result is None:
        return None
    diverged = result.get("training", {}).get("diverged_at", ())
    try:
        known = [rate for rate in rates(experiment, scale, folder) if rate not in diverged]
    except InputError:  # trials that are not there yet, or not any more
        known = [result.get("rate")]
    configs = [experiment.config(scale, rate) for rate in known[:1]]
    ours = [json.loads(json.dumps(_settings(config))) for config in configs]
    if [result.get("settings")] != ours:
        raise InputError(
            f"{path_of(folder, experiment)}: was made with other settings than scale "
            f"{scale.name!r} has now; choose another folder, or delete the file to make it again."
        )
    return result


def carry_out(experiment: Experiment, scale: Scale, folder: Path, tell: Tell) -> Result:
    """Train and test, going on where an earlier attempt stopped, and write the result.

    Args:
        experiment: what.
        scale: how much.
        folder: of all results; trainings go to its folder `runs`.
        tell: called with the share that is done, and a word.
    """
    tell(0.0, "data")
    known = rates(experiment, scale, folder)
    config = experiment.config(scale, known[0])
    task = config.load_task()
    result: Result = {
        "name": experiment.name,
        "experiment": dataclasses.asdict(experiment),
        "data": task.fingerprint,
        "environment": environment(),
    }
    if task.problems:
        result |= {"audit": "zero targets", "centroid_variance": centroid_variance(task.test)}
    if MODELS[experiment.model].trains:
        model, config = _trained(experiment, scale, known, folder, result, tell)
    else:
        torch.manual_seed(experiment.seed)
        model = config.build_model(task)
    result["rate"] = config.training.lr if MODELS[experiment.model].trains else None
    result["settings"] = _settings(config)
    if not experiment.trial and model is not None:
        tell(1.0, "test")
        result |= _tested(model, task, config)
    path = path_of(folder, experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f'"{key}": {json.dumps(_rounded(value))}' for key, value in result.items())
    write_atomically(path, lambda path: path.write_text(f"{{\n{lines}\n}}\n"))
    shutil.rmtree(_run_folder(folder, experiment, known, config) / "checkpoints", True)
    return result


def rates(experiment: Experiment, scale: Scale, folder: Path) -> list[float | None]:
    """Learning rates, from the lowest validation error of their trials on; [None]: no trials."""
    trials = [read_result(folder, trial) for trial in experiment.trials(scale)]
    known = [trial for trial in trials if trial is not None]
    if len(known) < len(trials):
        raise InputError(f"{experiment.name}: its trials of learning rates are missing.")
    if not known:
        return [None]
    found = [t for t in sorted(known, key=_validation_error) if _validation_error(t) < math.inf]
    if not found:
        raise InputError(f"{experiment.name}: its training diverged at every learning rate tried.")
    return [float(trial["rate"]) for trial in found]


def _validation_error(trial: Result) -> float:
    found = trial["training"].get("val_mse")
    return math.inf if found is None else float(found)


def _settings(config: Config) -> dict[str, Any]:
    training = dataclasses.asdict(config.training)
    for key in ("accelerator", "devices", "num_nodes", "save_every"):
        del training[key]  # where and how, not what
    return {
        "preset": config.preset,
        "model": dict(config.model),
        "task": dict(config.task),
        "training": training,
    }


def _run_folder(
    folder: Path, experiment: Experiment, known: Sequence[float | None], config: Config
) -> Path:
    """Where an experiment is trained; at another rate than the best, apart from the first try."""
    rate = config.training.lr
    again = "" if known[0] in (None, rate) else f"--then{rate:g}"
    return folder / "runs" / f"{experiment.name}{again}"


def _trained(
    experiment: Experiment,
    scale: Scale,
    known: Sequence[float | None],
    folder: Path,
    result: Result,
    tell: Tell,
) -> tuple[Forecaster | None, Config]:
    """The model, trained at the best rate at which it does not diverge, and the settings.

    None if it diverges at all of them, which is a result too.
    """
    diverged = []
    for rate in known:
        config = experiment.config(scale, rate)
        place = _run_folder(folder, experiment, known, config)
        try:
            run = train(
                config,
                place,
                resume=True,
                loggers=("csv",),
                callbacks=[_Watched(tell)],
                display=False,
                notify=lambda text: None,
            )
            break
        except InputError:
            if not (place / "diverged.json").exists():
                raise
            diverged.append(config.training.lr)
    else:
        result["training"] = {"diverged": True, "diverged_at": diverged[:-1]}
        return None, config
    progress = run.load("last").progress
    result["training"] = {
        "diverged": False,
        "diverged_at": diverged,
        "steps": progress.step,
        "skipped": progress.skipped,
        "samples": progress.step * config.training.batch_size,
        "seconds": progress.time,
        "val_mse": progress.best,
        "best_step": progress.best_step,
        "curve": learning_curve(place),
    }
    return run.model(), config


class _Watched(Callback):
    """Tells how much of the budget is used, about once a second."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.last = tell, 0.0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if time.monotonic() > self.last + 1:
            self.last = time.monotonic()
            self.tell(pl_module.used, f"step {pl_module.progress.step}")


def _tested(model: Forecaster, task: Task, config: Config) -> Result:
    batch = config.training.batch_size
    found = evaluate(model, task, batch_size=batch)
    graph, target = task.test[:SHOWN]
    with torch.no_grad():
        forecast = model(graph)
    own: Result = {
        "test": found.report,
        "shown": {"x": forecast.x.tolist(), "true": target.x.tolist()},
        "attention": attention_maps(model, task),
    }
    if task.test.noise > 0 and task.test.targets == "observed":
        clean = dataclasses.replace(config, task={**config.task, "targets": "clean"}).load_task()
        trivial = {name: kind() for name, kind in TRIVIAL_FORECASTS.items()}
        own["clean"] = {
            name: run(judged, clean.test, batch)[0].summary()
            for name, judged in {"model": model, **trivial}.items()
        }
    return own


def attention_maps(model: Forecaster, task: Task, windows: int = 64) -> list[dict[str, Any]]:
    """The mean attention from frame t to frame s over test windows and nodes, by block and kind."""
    if not isinstance(model, SET):
        return []
    graph, _ = task.test[: min(windows, len(task.test))]
    with torch.no_grad():
        maps = model.attention(graph)
    kinds = ("features", "positions", "velocities")
    found = [{kind: getattr(block, kind) for kind in kinds} for block in maps]
    return [
        {kind: m.mean((0, 1)).tolist() for kind, m in block.items() if m is not None}
        for block in found
    ]


def _rounded(value: Any) -> Any:
    """Six digits are all that a table needs, and a third of the bytes."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
