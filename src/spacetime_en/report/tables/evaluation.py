"""An evaluation, printed as tables and written to files."""

import csv
import json
from pathlib import Path
from typing import Any

from spacetime_en._util.files import make_folder, write_atomically, write_text_atomically
from spacetime_en._util.tensors import evenly_spaced_indices
from spacetime_en._util.terminal import Terminal
from spacetime_en.evaluation import RIVALS, Evaluation

TIMES_SHOWN = 6  # columns of the error against time


def print_evaluation(report: dict[str, Any], terminal: Terminal) -> None:
    """Print the report of an evaluation."""
    terminal.say(f"{report['task']}, {report['windows']:,} {report['split']} windows", "bold")
    for warning in report.get("warnings", []):
        terminal.say(f"warning: {warning}")
    rows = errors_by_model(report)
    table = [
        [name, *_cells(row["position_mse"]), *_cells(row["velocity_mse"])[:2]]
        for name, row in rows.items()
    ]
    head = ("MSE per coordinate", "position", "±", "median", "p90", "velocity", "±")
    terminal.table(head, table)
    if "error_against_time" in report:
        _show_paths(rows, terminal)
    errors = ", ".join(f"{k} {v:.1e}" for k, v in report["equivariance_error"].items())
    terminal.print(f"equivariance error: {errors}")
    if report["calibration"]:
        groups = report["calibration"]
        names = {0: "most certain nodes", len(groups) - 1: "least certain nodes"}
        table = [
            [names.get(i, ""), f"{row['predicted']:.3g}", f"{row['actual']:.3g}"]
            for i, row in enumerate(groups)
        ]
        terminal.table(("RMSE of a coordinate", "predicted", "actual"), table)
    drift = report["drift"]
    table = [
        [key.replace("_", " "), _median(row), _median(drift["truth"][key])]
        for key, row in drift["forecast"].items()
    ]
    terminal.table(("median relative change", "forecast", "truth"), table)
    for key, found in drift["found"].items():
        terminal.print(f"{key.replace('_', ' ')}: {found['formula']}")


def errors_by_model(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The errors of the model and of the baselines, by display name."""
    rivals = {name.replace("_", " "): report[name] for name in RIVALS if name in report}
    return {report.get("preset", report["model"]): report} | rivals


def _show_paths(rows: dict[str, dict[str, Any]], terminal: Terminal) -> None:
    """Print ADE and FDE, the best of several samples, and how the error grows with time."""
    first, *_ = rows.values()
    times = first["error_against_time"]
    terminal.print(f"{first['paths']['nodes']:,} paths of {len(times)} target times")
    table = []
    for name, row in rows.items():
        ade, fde = (row["paths"].get(what) for what in ("ade", "fde"))
        table.append([name, _word(row["ade"]), *_cells(ade)[1:], _word(row["fde"]), _cells(fde)[1]])
    terminal.table(("distances", "ADE", "±", "median", "p90", "FDE", "±"), table)
    for name, row in rows.items():
        if best := row["best_of"]:
            terminal.print(
                f"{name}, best of {best['k']} samples: ADE {_word(best['ade'])}, FDE "
                f"{_word(best['fde'])}"
            )
    shown = evenly_spaced_indices(len(times), TIMES_SHOWN).tolist()
    head = ("mean distance after", *(f"{times[k]['time']:.3g}" for k in shown))
    table = [
        [name, *(_word(row["error_against_time"][k]["mean_distance"]) for k in shown)]
        for name, row in rows.items()
    ]
    terminal.table(head, table)


def _cells(row: dict[str, float] | None) -> list[str]:
    """Format mean, standard error, median and 90th percentile."""
    row = row or {}
    mean, median, p90 = (_word(row.get(key)) for key in ("mean", "median", "p90"))
    error = row.get("standard_error")
    return [mean, "" if error is None else f"{error:.1g}", median, p90]


def _median(row: dict[str, float] | None) -> str:
    return "–" if row is None else f"{row['median']:.2g}"


def _word(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.4g}" if 1e-3 <= number < 1e4 else f"{number:.2e}"


def write_evaluation(evaluation: Evaluation, folder: Path, name: str) -> tuple[Path, Path]:
    """Write the report to ``NAME.json`` and one row per window to ``NAME.csv``.

    Returns: both paths.
    """
    make_folder(folder)
    report, table = folder / f"{name}.json", folder / f"{name}.csv"
    write_text_atomically(report, json.dumps(evaluation.report, indent=2) + "\n")

    def rows(path: Path) -> None:
        with path.open("w", newline="") as file:
            lines = evaluation.table()
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)

    write_atomically(table, rows)
    return report, table
