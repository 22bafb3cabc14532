"""An evaluation as tables for a terminal, and as files."""

import csv
import json
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from spacetime_en.evaluation import BASELINES, Evaluation
from spacetime_en.files import replace_whole

COLUMNS = ("mean", "median", "p90")


def show(report: dict[str, Any], console: Console) -> None:
    """Print the report of an evaluation."""
    console.print(f"[bold]{report['task']}[/bold], {report['windows']:,} {report['split']} windows")
    for warning in report.get("warnings", []):
        console.print(f"warning: {warning}")
    head = ("", "position\nMSE", "median", "p90", "velocity\nMSE", "median", "p90")
    table = Table(*head, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in table.columns:
        column.no_wrap = True  # half a number is worse than none
    rows = {report.get("preset", report["model"]): report} | {
        name: report[name] for name in BASELINES
    }
    for name, row in rows.items():
        cells = [row[what][c] for what in ("position_mse", "velocity_mse") for c in COLUMNS]
        table.add_row(
            name.replace("_", " "),
            *(f"{cell:.4g}" if 1e-3 <= cell < 1e4 else f"{cell:.2e}" for cell in cells),
        )
    console.print("", table, "", sep="\n")
    found = ", ".join(f"{k} {v:.1e}" for k, v in report["equivariance_error"].items())
    console.print(f"equivariance error: {found}")
    if report["calibration"]:
        groups = report["calibration"]
        table = Table("a coordinate's error", "said", "found", box=SIMPLE_HEAD)
        for i, row in enumerate(groups):
            name = {0: "the surest nodes", len(groups) - 1: "the least sure"}.get(i, "")
            table.add_row(name, f"{row['said']:.3g}", f"{row['found']:.3g}")
        console.print(table)
    if report["drift"]:
        table = Table("median relative change", "forecast", "truth", box=SIMPLE_HEAD)
        for key, row in report["drift"]["forecast"].items():
            truth = report["drift"]["truth"][key]
            table.add_row(key.replace("_", " "), f"{row['median']:.2g}", f"{truth['median']:.2g}")
        console.print(table)


def write(evaluation: Evaluation, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``NAME.json``, the report, and ``NAME.csv``, one row a window.

    Returns: the two paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, table = folder / f"{name}.json", folder / f"{name}.csv"
    text = json.dumps(evaluation.report, indent=2) + "\n"
    replace_whole(report, lambda path: path.write_text(text))

    def rows(path: Path) -> None:
        with path.open("w", newline="") as file:
            lines = evaluation.table()
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)

    replace_whole(table, rows)
    return report, table
