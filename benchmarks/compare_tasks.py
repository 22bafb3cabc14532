"""Does a comparison come within 10 % of the best preset with settings found by hand?

    python -m benchmarks.compare_tasks                              # all tasks: many hours
    python -m benchmarks.compare_tasks springs gravity --presets set-2 egnn --budget 5m --seeds 1

The reference figures are those of the best preset in results/general (`python -m
benchmarks.general`), means over its seeds, on the same test windows; no task has noisy targets.
Some were obtained with settings that a comparison does not choose, such as names of joints or a
longer budget; these are printed next to the ratio. Run it again to continue after an interruption;
each task's outcome is a JSON file in results/compare.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
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


@dataclasses.dataclass(frozen=True)
class ByHand:
    """The result of a preset with settings found by hand.

    Args:
        preset: its name.
        error: its position MSE, the mean over seeds.
        seeds: number of trainings.
        settings: of the model, where they are not the defaults, and the budget of each training.
    """

    preset: str
    error: float
    seeds: int
    settings: dict[str, Any]

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.error:.4g} ({self.preset}, seeds: {self.seeds}; {settings})"


def by_hand(row: str) -> ByHand | None:
    """The preset with the lowest mean error over its seeds, of those with results of a row."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(BY_HAND.glob(f"{row}--*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["preset"], []).append(result)
    best = [
        ByHand(
            preset,
            statistics.fmean(one["evaluation"]["position_mse"]["mean"] for one in results),
            len(results),
            (ROWS[row].model if preset == "set-2" else {})
            | {"budget": results[0]["training"]["max_time"]},
        )
        for preset, results in found.items()
    ]
    return min(best, key=lambda one: one.error, default=None)


def main() -> None:
    """Compare on each task, and print the best model found next to the figure found by hand."""
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
        assert board.best is not None  # (or it would have been rejected)
        error, known = board.best.error, by_hand(TASKS[task])
        ratio = None if known is None else error / known.error
        found = {
            "task": question,
            "presets": given.presets,
            **how,
            "chosen": board.chosen,
            "error": error,
            "by_hand": None if known is None else dataclasses.asdict(known),
            "ratio": ratio,
            "leaderboard": board.to_json(),
        }
        write_text_atomically(RESULTS / f"{task}.json", json.dumps(found, indent=1) + "\n")
        beside = "no figure by hand"
        if known is not None and ratio is not None:
            verdict = "within 10 %" if ratio <= WITHIN else "NOT within 10 %"
            beside = f"by hand {known}: {ratio:.2f} of it, {verdict}"
        print(f"{task}: {board.chosen} {error:.4g}; {beside}", flush=True)


if __name__ == "__main__":
    main()
