"""The report of a comparison: leaderboard, curves, and the best model's worst windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spacetime_en._util.errors import InputError
from spacetime_en._util.files import write_text_atomically
from spacetime_en.compare.judging import Judgement
from spacetime_en.compare.leaderboard import Leaderboard, duration
from spacetime_en.compare.page import html_report
from spacetime_en.compare.panel import Curve, Panel
from spacetime_en.compare.results import Result, read_result
from spacetime_en.data.task import Task
from spacetime_en.report.animation import window_scene
from spacetime_en.report.scene import Scene
from spacetime_en.runs.run import environment

REPORT_FILE = "report.html"
WORST = 6  # windows to look at
SHOWN_BESIDE = 2  # models whose forecasts are drawn next to those of the best


def write_comparison(
    folder: Path,
    task: Task,
    board: Leaderboard,
    judgements: Sequence[Judgement],
    cost: Mapping[str, Any],
) -> Path:
    """Write the HTML report and the leaderboard as Markdown.

    Args:
        folder: of the comparison.
        task: that the models were compared on.
        board: the leaderboard.
        judgements: of all models.
        cost: of the last session.
    Returns: the path of the report.
    """
    by_preset = {judgement.candidate.preset: judgement for judgement in judgements}
    ranked = [by_preset[row.preset] for row in board.rows]
    table = board.table()
    words = " ".join(board.words())
    text = f"# {board.title}\n\n{words}\n\n{table.to_markdown()}"
    write_text_atomically(folder / "leaderboard.md", text)
    data = {
        "title": f"Which model for {task.label}?",
        "what": words,
        "note": "The test windows with the largest errors of the best model, the worst first. "
        "Thick: observed. Thin, with discs: the true future. Drag to turn or move, scroll or "
        "pinch to zoom.",
        "tables": [asdict(table)],
        "panels": [asdict(panel) for panel in _panels(folder, ranked)],
        "scenes": [scene.to_json() for scene in _worst(folder, task, board, by_preset)],
        "attention": [],
        "facts": _facts(task, board, cost),
    }
    write_text_atomically(folder / REPORT_FILE, html_report(data))
    return folder / REPORT_FILE


def _panels(folder: Path, ranked: Sequence[Judgement]) -> list[Panel]:
    learning = Panel(
        "learning_curves",
        "Validation error while training, first seed",
        "processor time, seconds",
        "validation position MSE",
        [],
    )
    ahead = Panel("error_vs_time", "Test error against time ahead", "time ahead", "distance", [])
    spread = Panel(
        "calibration",
        "Errors as predicted and as they are",
        "predicted error",
        "actual error",
        [],
        log_x=True,
    )
    for judgement in ranked:
        name, trivial = judgement.candidate.preset, judgement.candidate.kind == "trivial"
        fit = read_result(folder, judgement.fits()[0].name)
        if fit is not None and (points := _learning_points(fit)):
            learning.curves.append(_curve(name, points, trivial))
        judged = judgement.result(folder)
        if judged is None:
            continue
        rows = judged["seeds"][0].get("error_against_time", ())
        known = [(row["time"], row["mean_distance"]) for row in rows if row["mean_distance"]]
        if known:
            ahead.curves.append(_curve(name, known, trivial))
        if groups := judged["seeds"][0]["calibration"]:
            x, y = ([group[key] for group in groups] for key in ("predicted", "actual"))
            spread.curves.append(Curve(name, x, y))
    if spread.curves:
        ends = [value for curve in spread.curves for value in (*curve.x, *curve.y) if value]
        spread.curves.append(
            Curve("as predicted", [min(ends), max(ends)], [min(ends), max(ends)], True)
        )
    return [panel for panel in (learning, ahead, spread) if panel.curves]


def _curve(name: str, points: Sequence[tuple[float, float]], trivial: bool) -> Curve:
    return Curve(name, [x for x, _ in points], [y for _, y in points], trivial)


def _learning_points(fit: Result) -> list[tuple[float, float]]:
    """Processor time and validation error at each validation of a training."""
    training = fit["training"]
    if not training.get("steps"):
        return []
    per_step = training["seconds"] / training["steps"]
    return [(step * per_step, mse) for step, mse in training.get("curve", ()) if mse is not None]


def _worst(
    folder: Path, task: Task, board: Leaderboard, by_preset: Mapping[str, Judgement]
) -> list[Scene]:
    """The test windows with the best model's largest errors, with some others' forecasts."""
    if board.best is None or task.test.trajectories.x.shape[-1] > 3:
        return []
    others = [row.preset for row in board.rows if row.preset != board.chosen][:SHOWN_BESIDE]
    models = {}
    for preset in (board.chosen, *others):
        found = ((fit, fit.result(folder)) for fit in by_preset[preset].fits())
        fit, result = next((fit, result) for fit, result in found if result is not None)
        models[preset] = fit.model(folder, result)
    judged = by_preset[board.chosen].result(folder) or {}
    errors = np.mean([seed["position"] for seed in judged["seeds"]], axis=0)
    scenes = []
    for window in np.argsort(-errors)[:WORST].tolist():
        try:
            scenes.append(window_scene(models, task, window))
        except InputError:  # such data cannot be drawn
            return []
    return scenes


def _facts(task: Task, board: Leaderboard, cost: Mapping[str, Any]) -> dict[str, str]:
    """How the comparison was made."""
    here = environment()
    sizes = {name: len(windows) for name, windows in task.splits.items()}
    return {
        "Command": f"spacetime {' '.join(here['command'])}",
        "Windows": ", ".join(f"{name} {count:,}" for name, count in sizes.items()),
        "Choice": "of learning rates, of the moment to stop and of the model: by validation "
        "windows; test windows were read once, after all trainings",
        "Processor time": f"{duration(cost['processor_seconds'])} in the last sitting, "
        f"{duration(cost['fitting_seconds'])} of them for fitting models and "
        f"{duration(cost['testing_seconds'])} for testing them"
        if cost
        else "not known",
        "Versions": ", ".join(f"{name} {number}" for name, number in here["versions"].items()),
        "Data": task.fingerprint,
    }
