"""All models on one task of the paper in one table, at equal time: results/general, results/cpu.

    python -m benchmarks.rivals

Nothing is trained: the rows are what `python -m benchmarks.general ROW --preset PRESET` and
`spacetime reproduce --scale cpu` have stored, the lowest mean error first. Each table is written to
results/general/tables and printed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spacetime_en._util.files import write_text_atomically
from spacetime_en.compare.table import Cell, Table, number
from spacetime_en.reproduce.plan import BEYOND, MODELS

OURS, PAPERS = Path("results/general"), Path("results/cpu/experiments")
# Rows of benchmarks.general, and what the same task is called in the paper's tables.
TASKS = {"charged-1000": "n5-h1000", "charged-10000": "n5-h10000"}
OF_THE_PAPER = ("set", "set-narrow", "egnn")
COLUMNS = (
    *("parameters", "seeds", "position MSE", "median", "p90", "velocity MSE", "median"),
    *("learning rate", "steps"),
)
NOTES = (
    "MSE ± standard error over windows; of several seeds, the means of both and of the quantiles.",
    "Learning rates in bold were searched on this very task, in trials of a tenth of the budget or "
    "more, of 0.001, 0.003 and 0.01; the others are the preset's own.",
)


def main() -> None:
    """Write and print the table of each task."""
    (OURS / "tables").mkdir(exist_ok=True)
    for row, papers in TASKS.items():
        made = table(row, papers)
        write_text_atomically(OURS / "tables" / f"{row}.md", made.to_markdown())
        print(f"{made.title}\n\n{made.to_markdown()}")


def table(row: str, papers: str) -> Table:
    """All models that have results on a task.

    Args:
        row: of benchmarks.general.
        papers: what `spacetime reproduce` calls the same task.
    """
    found = sorted(
        [*stored(OURS, row, BEYOND), *stored(PAPERS, papers, OF_THE_PAPER)],
        key=lambda of_model: _mean(of_model[1], "position_mse", "mean"),
    )
    rows = [(MODELS[name].label, cells(results)) for name, results in found]
    return Table(row, row, list(COLUMNS), rows, list(NOTES))


def stored(
    folder: Path, task: str, names: Sequence[str] | dict[str, Any]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The name and the results of each model that has some, one result a seed."""
    for name in names:
        paths = sorted(folder.glob(f"{task}--{name}--seed?.json"))
        has_trials = any(folder.glob(f"trial--{task}--{name}--*.json"))
        if paths:
            yield name, [_alike(json.loads(path.read_text()), has_trials) for path in paths]


def _alike(result: dict[str, Any], has_trials: bool) -> dict[str, Any]:
    """What both commands store, under the same names."""
    if "rates_tried" in result:
        errors, training, has_trials = result["evaluation"], result, bool(result["rates_tried"])
    else:
        errors, training = result["test"], result["training"]
    rate = result.get("rate", result["training"].get("lr"))
    return {**errors, "lr": rate, "searched": has_trials, "steps": training["steps"]}


def cells(results: Sequence[dict[str, Any]]) -> list[Cell]:
    """The cells of a model, means over its seeds."""
    rate, steps = number(results[0]["lr"]), [result["steps"] for result in results]
    return [
        Cell(results[0]["parameters"], f"{results[0]['parameters']:,}"),
        Cell(len(results), str(len(results))),
        *_errors(results, "position_mse"),
        *_errors(results, "velocity_mse")[:2],
        Cell(results[0]["lr"], f"**{rate}**" if results[0]["searched"] else rate),
        Cell(
            statistics.mean(steps), " to ".join(f"{s:,}" for s in sorted({min(steps), max(steps)}))
        ),
    ]


def _errors(results: Sequence[dict[str, Any]], kind: str) -> list[Cell]:
    """Mean ± standard error, median and 90th percentile."""
    mean, median, p90 = (_mean(results, kind, key) for key in ("mean", "median", "p90"))
    of_mean = [result[kind].get("standard_error") for result in results]
    known = f" ± {number(statistics.mean(of_mean), 1)}" if None not in of_mean else ""
    return [Cell(mean, number(mean) + known), Cell(median, number(median)), Cell(p90, number(p90))]


def _mean(results: Sequence[dict[str, Any]], kind: str, key: str) -> float:
    return statistics.mean(result[kind][key] for result in results)


if __name__ == "__main__":
    main()
