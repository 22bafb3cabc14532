"""An evaluation, printed as tables and written to files."""

import csv
import json
from pathlib import Path
from typing import Any

from spacetime_en._util.files import make_folder, write_atomically, write_text_atomically
from spacetime_en._util.terminal import Terminal
from spacetime_en.evaluation import TRIVIAL_FORECASTS, Evaluation

COLUMNS = ("mean", "median", "p90")


def print_evaluation(report: dict[str, Any], terminal: Terminal) -> None:
    """Print the report of an evaluation."""
    terminal.say(f"{report['task']}, {report['windows']:,} {report['split']} windows", "bold")
    for warning in report.get("warnings", []):
        terminal.say(f"warning: {warning}")
    head = ("", "position\nMSE", "median", "p90", "velocity\nMSE", "median", "p90")
    rows = {report.get("preset", report["model"]): report} | {
        name: report[name] for name in TRIVIAL_FORECASTS
    }
    table = []
    for name, row in rows.items():
        cells = [row[what][c] for what in ("position_mse", "velocity_mse") for c in COLUMNS]
        words = (f"{cell:.4g}" if 1e-3 <= cell < 1e4 else f"{cell:.2e}" for cell in cells)
        table.append([name.replace("_", " "), *words])
    terminal.table(head, table)
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
    if report["drift"]:
        truth = report["drift"]["truth"]
        table = [
            [key.replace("_", " "), f"{row['median']:.2g}", f"{truth[key]['median']:.2g}"]
            for key, row in report["drift"]["forecast"].items()
        ]
        terminal.table(("median relative change", "forecast", "truth"), table)


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
