"""An experiment of the paper as a job of the engine: train, test, write the result."""

from __future__ import annotations

import dataclasses
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spacetime_en._util.errors import InputError
from spacetime_en.compare.job import Job, Tell
from spacetime_en.compare.results import (
    Result,
    made_with,
    read_result,
    result_path,
    settings_of,
    write_result,
)
from spacetime_en.compare.trained import train_first_that_converges
from spacetime_en.data import Task
from spacetime_en.evaluation import TRIVIAL_FORECASTS, evaluate, measure_errors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.models.set import SET
from spacetime_en.reproduce.plan import MODELS, Experiment, Scale
from spacetime_en.reproduce.published import centroid_variance
from spacetime_en.runs.config import Config
from spacetime_en.runs.run import environment

SHOWN = 8  # test windows whose forecasts are kept: the first ones, not selected


@dataclass(frozen=True)
class PaperJob(Job):
    """An experiment of the paper at a scale."""

    experiment: Experiment
    scale: Scale

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(trial.name for trial in self.experiment.trials(self.scale))

    def result(self, folder: Path) -> Result | None:
        return final_result(folder, self.experiment, self.scale)

    def carry_out(self, folder: Path, tell: Tell) -> Result:
        return carry_out(self.experiment, self.scale, folder, tell)

    def summary(self, result: Result) -> str:
        if "test" in result:
            return f"test MSE {result['test']['position_mse']['mean']:.4g}"
        return f"validation MSE {result['training'].get('val_mse', float('nan')):.4g}"


def checked_result(folder: Path, experiment: Experiment, scale: Scale) -> Result | None:
    """The result of an experiment, or None; an error if its settings differ from the plan's.

    If the experiment's trials are missing, or have since chosen another learning rate, the result
    may be at any rate: see :func:`has_chosen_rate`.
    """
    result = read_result(folder, experiment.name)
    if result is None and experiment.rate is not None and not experiment.trial:
        return _same_training(folder, experiment, scale)
    if result is None:
        return None
    rate = result.get("rate") if experiment.trials(scale) else None
    if not made_with(result, experiment.config(scale, rate)):
        raise InputError(
            f"{result_path(folder, experiment.name)}: was made with other settings than scale "
            f"{scale.name!r} has now; choose another folder, or delete the file to make it again."
        )
    return result


def _same_training(folder: Path, experiment: Experiment, scale: Scale) -> Result | None:
    """The result of the same experiment without a given rate, if it was run at this one."""
    result = read_result(folder, dataclasses.replace(experiment, rate=None).name)
    same = result is not None and made_with(result, experiment.config(scale, None))
    return result if same else None


def has_chosen_rate(result: Result, folder: Path, experiment: Experiment, scale: Scale) -> bool:
    """Whether a result is at the learning rate that the experiment's own trials choose."""
    if not experiment.trials(scale):
        return True
    try:
        candidates = rates(experiment, scale, folder)
    except InputError:  # its trials are missing
        return False
    diverged = result.get("training", {}).get("diverged_at", ())
    return [rate for rate in candidates if rate not in diverged][:1] == [result.get("rate")]


def final_result(folder: Path, experiment: Experiment, scale: Scale) -> Result | None:
    """The result of an experiment at the learning rate of its own trials, or None."""
    result = checked_result(folder, experiment, scale)
    if result is None or not has_chosen_rate(result, folder, experiment, scale):
        return None
    return result


def carry_out(experiment: Experiment, scale: Scale, folder: Path, tell: Tell) -> Result:
    """Train and test, resuming an interrupted attempt, and write the result.

    Args:
        experiment: what to carry out.
        scale: the size of data and training budget.
        folder: of all results; trainings go to its subfolder ``runs``.
        tell: called with the fraction of the work done and a short status.
    """
    if (known := final_result(folder, experiment, scale)) is not None:
        return known  # the missing trials have now confirmed its rate
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
    run = None
    if MODELS[experiment.model].trains:
        configs = [experiment.config(scale, rate) for rate in candidates]
        anew = result_path(folder, experiment.name).exists()  # at another rate than before
        name = experiment.name + (f"--anew{candidates[0]:g}" if anew else "")
        place = folder / "runs" / name
        run, config, result["training"] = train_first_that_converges(configs, place, tell, task)
        model = None if run is None else run.model()
    else:
        torch.manual_seed(experiment.seed)
        model = config.build_model(task)
    result["rate"] = config.training.lr if MODELS[experiment.model].trains else None
    result["settings"] = settings_of(config)
    if not experiment.trial and model is not None:
        tell(1.0, "test")
        result |= _tested(model, task, config)
    write_result(folder, experiment.name, result)
    if run is not None:
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    return result


def rates(experiment: Experiment, scale: Scale, folder: Path) -> list[float | None]:
    """Learning rates by the validation error of their trials, best first; [None]: no trials."""
    trials = [read_result(folder, trial.name) for trial in experiment.trials(scale)]
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
