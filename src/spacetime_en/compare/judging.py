"""The last jobs of a comparison: every model is evaluated on the test windows, once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from spacetime_en._util.errors import InputError
from spacetime_en._util.schema import Finite
from spacetime_en.compare.candidates import Candidate
from spacetime_en.compare.job import Job, Tell
from spacetime_en.compare.models import Fit, Question
from spacetime_en.compare.results import Result, read_result, write_result
from spacetime_en.data.task import Task
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.testing import equivariance_errors

BATCH = 100  # windows of a forward pass
SAMPLE = 8  # windows whose symmetry is measured


@dataclass
class _SeedResult:
    position: list[Finite]
    position_mse: dict[str, Any]
    velocity_mse: dict[str, Any]
    calibration: Any
    parameters: int
    forecasts_per_second: Finite


@dataclass
class _TestResult:
    """The required entries of a test result."""

    seeds: Annotated[list[_SeedResult], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Judgement(Job):
    """The errors of a model on all test windows, for every seed.

    Args:
        question: of the comparison.
        candidate: the model.
        seeds: of its trainings.
        after: all training jobs of the comparison: no model is tested before all are trained.
    """

    question: Question
    candidate: Candidate
    seeds: tuple[int, ...]
    after: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"test--{self.candidate.file_name}"

    @property
    def label(self) -> str:
        return f"test--{self.candidate.preset}"

    @property
    def needs(self) -> tuple[str, ...]:
        return self.after

    def fits(self) -> list[Fit]:
        """The trainings that are tested."""
        return [Fit(self.question, self.candidate, seed) for seed in self.seeds]

    def result(self, folder: Path) -> Result | None:
        result = read_result(folder, self.name, _TestResult)
        # (Seeds that have been trained since, again or for the first time, are tested anew.)
        trained = [_identity(made) for _, made in self._trained(folder)]
        return result if result is not None and result.get("fits") == trained else None

    def _trained(self, folder: Path) -> list[tuple[Fit, Result]]:
        found = [(fit, fit.result(folder)) for fit in self.fits()]
        return [(fit, result) for fit, result in found if result is not None]

    def carry_out(self, folder: Path, tell: Tell) -> Result:
        task = self.question.load_task()
        trained = self._trained(folder)
        if not trained:
            raise InputError("there is nothing to test, because no training was finished.")
        seeds, begin = [], time.process_time()
        for place, (fit, result) in enumerate(trained):
            tell(place / len(trained), "test")
            model = fit.model(folder, result)
            seeds.append({"seed": fit.seed, **judge(model, task)})
            if place == 0:  # a property of the architecture, the same for all seeds
                seeds[0]["equivariance_error"] = measure_symmetry(model, task)
        made: Result = {
            "name": self.name,
            "preset": self.candidate.preset,
            "fits": [_identity(result) for _, result in trained],
            "seeds": seeds,
            "testing_seconds": time.process_time() - begin,
        }
        write_result(folder, self.name, made)
        return made

    def summary(self, result: Result) -> str:
        errors = [seed["position_mse"]["mean"] for seed in result["seeds"]]
        return f"test MSE {np.mean(errors):.4g}"


def _identity(fit: Result) -> dict[str, Any]:
    """What distinguishes a training from others of the same model and seed."""
    training = {key: fit["training"].get(key) for key in ("val_mse", "best_step")}
    return {"seed": fit["seed"], "run": fit["run"], **training}


def judge(model: Forecaster, task: Task) -> dict[str, Any]:
    """The errors of a model on the test windows, and its speed.

    ``position`` and ``velocity`` hold the MSE of every window.
    """
    windows = task.test.for_model(model)
    begin = time.process_time()
    errors, _ = measure_errors(model, windows, BATCH)
    seconds = time.process_time() - begin
    if not (errors.position + errors.velocity).isfinite().all():
        raise InputError("some of its forecasts for test windows are NaN or infinite.")
    sample, _ = windows.sample(SAMPLE)
    times = [float(f"{t:.7g}") for t in sample.horizon.double().mean(0).tolist()]
    steps = np.atleast_1d(windows.target_steps).tolist()
    return {
        "position": errors.position.tolist(),
        "velocity": errors.velocity.tolist(),
        **errors.summary(),
        **errors.of_paths(times, steps),
        "calibration": errors.calibration(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "forecasts_per_second": len(windows) / max(seconds, 1e-9),
    }


def measure_symmetry(model: Forecaster, task: Task) -> dict[str, float]:
    """The equivariance errors of a model on a few test windows."""
    graph, _ = task.test.for_model(model).sample(SAMPLE)
    extent = max(1.0, float(graph.x.abs().nan_to_num().max()))
    return equivariance_errors(model, graph, max_translation=extent)._asdict()
