"""Carry out one experiment: train, test, and write the result as one JSON file."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import write_text_atomically
from spacetime_en.data import Task
from spacetime_en.evaluation import TRIVIAL_FORECASTS, evaluate, measure_errors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.models.set import SET
from spacetime_en.reproduce.plan import MODELS, Experiment, Scale
from spacetime_en.reproduce.published import centroid_variance
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import environment, learning_curve
from spacetime_en.runs.training import train
from spacetime_en.training.settings import TrainingSettings

if TYPE_CHECKING:
    from lightning.pytorch import Callback

RESULTS = "experiments"  # the folder of the results
SHOWN = 8  # the first test windows, whose forecasts are kept: not a choice of lucky ones
Result = dict[str, Any]
Tell = Callable[[float, str], None]


def path_of(folder: Path, experiment: Experiment) -> Path:
    """The file of an experiment's result."""
    return folder / RESULTS / f"{experiment.name}.json"


def read_result(folder: Path, experiment: Experiment) -> Result | None:
    """The result of an experiment, or None."""
    path = path_of(folder, experiment)
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, ValueError, TypeError) as error:
        raise InputError(f"{path}: is no result ({error}); delete it to make it again.") from None


def checked_result(folder: Path, experiment: Experiment, scale: Scale) -> Result | None:
    """The result of an experiment, or None; refused if its settings are not the plan's."""
    result = read_result(folder, experiment)
    if result is None:
        return None
    diverged = result.get("training", {}).get("diverged_at", ())
    try:
        candidates = [rate for rate in rates(experiment, scale, folder) if rate not in diverged]
    except InputError:  # its trials are missing
        candidates = [result.get("rate")]
    configs = [experiment.config(scale, rate) for rate in candidates[:1]]
    expected = [json.loads(json.dumps(_settings(config))) for config in configs]
    if [_completed(result.get("settings"))] != expected:
        raise InputError(
            f"{path_of(folder, experiment)}: was made with other settings than scale "
            f"{scale.name!r} has now; choose another folder, or delete the file to make it again."
        )
    return result


def _completed(settings: Any) -> Any:
    """The settings of a result; those that it is too old to know have their defaults."""
    if not isinstance(settings, dict) or not isinstance(settings.get("training"), dict):
        return settings
    defaults = {name: getattr(TrainingSettings(), name) for name in _that_matter()}
    return {**settings, "training": defaults | settings["training"]}


def carry_out(experiment: Experiment, scale: Scale, folder: Path, tell: Tell) -> Result:
    """Train and test, resuming an interrupted attempt, and write the result.

    Args:
        experiment: what to carry out.
        scale: the size of data and training budget.
        folder: of all results; trainings go to its subfolder ``runs``.
        tell: called with the fraction of the work that is done and a short status.
    """
    tell(0.0, "data")
    candidates = rates(experiment, scale, folder)
    config = experiment.config(scale, candidates[0])
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
        model, config = _trained(experiment, scale, candidates, folder, result, tell)
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
    write_text_atomically(path, f"{{\n{lines}\n}}\n")
    shutil.rmtree(_run_folder(folder, experiment, candidates, config) / "checkpoints", True)
    return result


def rates(experiment: Experiment, scale: Scale, folder: Path) -> list[float | None]:
    """Learning rates by the validation error of their trials, best first; [None]: no trials."""
    trials = [read_result(folder, trial) for trial in experiment.trials(scale)]
    if None in trials:
        raise InputError(f"{experiment.name}: its learning-rate trials are missing.")
    if not trials:
        return [None]
    finite = [trial for trial in trials if trial and _validation_error(trial) < math.inf]
    if not finite:
        raise InputError(f"{experiment.name}: its training diverged at every learning rate tried.")
    return [float(trial["rate"]) for trial in sorted(finite, key=_validation_error)]


def _validation_error(trial: Result) -> float:
    error = trial["training"].get("val_mse")
    return math.inf if error is None else float(error)


def _settings(config: Config) -> dict[str, Any]:
    settings = config.to_dict()
    training = {key: settings["training"][key] for key in _that_matter()}
    return {**settings, "training": training}


def _that_matter() -> list[str]:
    """The settings of a training that change what is trained, and not only where it runs."""
    where = ("accelerator", "devices", "num_nodes", "save_every")
    return [field.name for field in dataclasses.fields(TrainingSettings) if field.name not in where]


def _run_folder(
    folder: Path, experiment: Experiment, candidates: Sequence[float | None], config: Config
) -> Path:
    """The run folder of an experiment; at any other rate than the best, a folder of its own."""
    rate = config.training.lr
    suffix = "" if candidates[0] in (None, rate) else f"--then{rate:g}"
    return folder / "runs" / f"{experiment.name}{suffix}"


def _trained(
    experiment: Experiment,
    scale: Scale,
    candidates: Sequence[float | None],
    folder: Path,
    result: Result,
    tell: Tell,
) -> tuple[Forecaster | None, Config]:
    """The model, trained at the best rate at which it does not diverge, and its config.

    The model is None if it diverges at every rate, which is a result too.
    """
    diverged = []
    for rate in candidates:
        config = experiment.config(scale, rate)
        place = _run_folder(folder, experiment, candidates, config)
        try:
            run = train(
                config,
                place,
                resume=True,
                loggers=("csv",),
                callbacks=[_budget_reporter(tell)],
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
        "samples": progress.step * run.config.training.batch,
        "seconds": progress.time,
        "val_mse": progress.best,
        "best_step": progress.best_step,
        "curve": learning_curve(place),
    }
    return run.model(), config


def _budget_reporter(tell: Tell) -> Callback:
    """A callback that reports about once a second which fraction of the budget is used."""
    from lightning.pytorch.callbacks import LambdaCallback

    last = 0.0

    def report(trainer: Any, module: Any, *args: Any) -> None:
        nonlocal last
        if time.monotonic() > last + 1:
            last = time.monotonic()
            tell(module.used, f"step {module.progress.step}")

    return LambdaCallback(on_train_batch_end=report)


def _tested(model: Forecaster, task: Task, config: Config) -> Result:
    batch = config.training.batch
    evaluation = evaluate(model, task, batch_size=batch)
    graph, target = task.test[:SHOWN]
    with torch.no_grad():
        forecast = model(graph)
    result: Result = {
        "test": evaluation.report,
        "shown": {"x": forecast.last[0].tolist(), "true": target.last[0].tolist()},
        "attention": attention_maps(model, task),
    }
    if task.test.noise > 0 and task.test.targets == "observed":
        clean = dataclasses.replace(config, task={**config.task, "targets": "clean"}).load_task()
        trivial = {name: kind() for name, kind in TRIVIAL_FORECASTS.items()}
        result["clean"] = {
            name: measure_errors(forecaster, clean.test, batch)[0].summary()
            for name, forecaster in {"model": model, **trivial}.items()
        }
    return result


def attention_maps(model: Forecaster, task: Task, windows: int = 64) -> list[dict[str, Any]]:
    """The mean attention from frame t to frame s over test windows and nodes, by block and kind."""
    if not isinstance(model, SET):
        return []
    graph, _ = task.test[: min(windows, len(task.test))]
    with torch.no_grad():
        maps = [block._replace(edges=None)._asdict() for block in model.attention(graph)]
    return [
        {kind: m.mean((0, 1)).tolist() for kind, m in block.items() if m is not None}
        for block in maps
    ]


def _rounded(value: Any) -> Any:
    """Floats with six digits, which is all that a table needs, and None for infinite ones."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
