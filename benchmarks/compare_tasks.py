"""Does a comparison come within 10 % of the best preset with settings found by hand?

    python -m benchmarks.compare_tasks                              # all tasks: many hours
    python -m benchmarks.compare_tasks springs gravity --presets set-2 egnn --budget 5m --seeds 1

The figures to reach are the lowest in results/general (`python -m benchmarks.general`), on the same
test windows. Run it again to go on after an interruption; each task's outcome is a JSON file in
results/compare.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.general import RESULTS as BY_HAND
from benchmarks.general import ROWS
from spacetime_en._util.files import write_text_atomically
from spacetime_en.compare import compare

RESULTS = Path("results/compare")
# Our tasks, and the rows of benchmarks.general on the same windows.
TASKS = {
    "charged": "charged-10000",
    "springs": "springs",
    "gravity": "gravity",
    "mocap-walk": "walk",
    "zara1": "zara1",
    "solar-system": "planets",
}
WITHIN = 1.1


def by_hand(row: str) -> tuple[str, float] | None:
    """The file and the mean position MSE of the best result of a row, whatever its preset."""
    found = {}
    for path in sorted(BY_HAND.glob(f"{row}--*.json")):
        errors = json.loads(path.read_text())["evaluation"]["position_mse"]
        found[path.name] = float(errors["mean"])
    return min(found.items(), key=lambda item: item[1]) if found else None


def main() -> None:
    """Compare on each task, and print the best found beside the figure by hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--presets", nargs="*", default=[], help="by default all that fit")
    parser.add_argument("--budget", default="5m", help="of each model, search and seeds included")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/compare-tasks"))
    given = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for task in given.tasks:
        question = ROWS[TASKS[task]].task
        how: dict[str, Any] = {"budget": given.budget, "seeds": given.seeds}
        board = compare(question, given.out / task, given.presets, **how).leaderboard
        error, known = board.best.error, by_hand(TASKS[task])
        ratio = None if known is None else error / known[1]
        found = {
            "task": question,
            "presets": given.presets,
            **how,
            "chosen": board.chosen,
            "error": error,
            "by_hand": known,
            "ratio": ratio,
            "leaderboard": board.to_json(),
        }
        write_text_atomically(RESULTS / f"{task}.json", json.dumps(found, indent=1) + "\n")
        beside = "no figure by hand"
        if known is not None and ratio is not None:
            verdict = "within 10 %" if ratio <= WITHIN else "NOT within 10 %"
            beside = f"by hand {known[1]:.4g} ({known[0]}), {ratio:.2f} of it, {verdict}"
        print(f"{task}: {board.chosen} {error:.4g}; {beside}", flush=True)


if __name__ == "__main__":
    main()
