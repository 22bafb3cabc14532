"""Does a short comparison name the right winner? On the demo's data, for five seeds.

    python -m benchmarks.compare_seeds            # about an hour and a quarter on two cores
    python -m benchmarks.compare_seeds --long-presets set-2 set-flow egnn ridge-shared
    python -m benchmarks.compare_seeds set-2 egnn ridge-shared --long 1m --seeds 2

The right winner is the model with the lowest test error when each has the long budget, or one whose
paired difference to that model is 0 within its interval. By default all presets that fit are
compared; `--long-presets` limits the long budget to those that may win with it.
Prints one line per seed: the winner, the wall-clock time (unknown for a comparison that was
interrupted), and the overhead of the comparison itself. Results so far are in results/compare, and
the same command continues from there, on another machine too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spacetime_en._util.files import write_text_atomically
from spacetime_en.compare import Compared, compare
from spacetime_en.compare.leaderboard import differences_to, groups_of
from spacetime_en.compare.results import RESULTS as EXPERIMENTS
from spacetime_en.report.demo import TASK
from spacetime_en.runs.config import open_task

RESULTS = Path("results/compare")


def main() -> None:
    """Compare with the long budget, then with the short one for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", help="by default all that fit")
    parser.add_argument("--out", type=Path, default=Path("runs/compare-seeds"))
    parser.add_argument("--short", default="30s", help="budget whose winner is checked")
    parser.add_argument("--long", default="5m", help="budget that tells which winner is right")
    parser.add_argument("--long-presets", nargs="*", default=[], help="by default the same")
    parser.add_argument("--seeds", type=int, default=5, help="number of short comparisons")
    given = parser.parse_args()
    contenders = given.long_presets or given.presets
    question = {
        "presets": given.presets,
        "long": {"budget": given.long, "presets": contenders},
        "short": {"budget": given.short},
    }
    found = stored(question) or measured_long(question, given.out / "long")
    right, done = found["long"]["right"], found["short"]["seeds"]
    print(f"at {given.long}: {', '.join(right)}")
    for number in range(given.seeds):
        # (Three trainings each: the next comparison starts with the next three seeds.)
        folder, seed = given.out / f"short-{number}", 3 * number
        if number == len(done):
            how: dict[str, Any] = {"budget": given.short, "seed": seed}
            made, wall = _timed(folder, partial(compare, TASK, folder, given.presets, **how))
            chosen = made.leaderboard.chosen
            cost = json.loads((folder / "leaderboard.json").read_text())["cost"]
            one = {"seed": seed, "chosen": chosen, "is_right": chosen in right, "cost": cost}
            done.append(one | {"wall_seconds": wall})
            _write(found)
        print(in_words(done[number]), flush=True)
    named = sum(one["is_right"] for one in done[: given.seeds])
    print(f"{named} of {given.seeds} right at {given.short}")


def stored(question: dict[str, Any]) -> dict[str, Any] | None:
    """The content of results/compare, if it answers the same question."""
    path = RESULTS / "seeds.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    same = found["presets"] == question["presets"] and all(
        found[part].get(key) == asked
        for part in ("long", "short")
        for key, asked in question[part].items()
    )
    return found if same else None


def measured_long(question: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compare with the long budget, and record which winners are right."""
    asked = question["long"]
    made = compare(TASK, folder, asked["presets"], budget=asked["budget"])
    rows = _rows(made.leaderboard.to_json())
    found = {
        "presets": question["presets"],
        "long": asked | {"right": right_winners(made), "rows": rows},
        "short": question["short"] | {"seeds": []},
    }
    _write(found)
    return found


def in_words(one: Mapping[str, Any]) -> str:
    """The choice of a short comparison, in one line."""
    wrong = "" if one["is_right"] else ", which is wrong"
    wall = one["wall_seconds"]
    took = "an unknown time" if wall is None else f"{wall:.0f} s"
    return f"seed {one['seed']}: {one['chosen']}{wrong}, in {took}, {overhead_of(one['cost'])}"


def right_winners(made: Compared) -> list[str]:
    """The model with the lowest test error, and those that are no worse than it."""
    rows = made.leaderboard.rows
    names = {row.preset for row in rows}
    paths = sorted((made.folder / EXPERIMENTS).glob("test--*.json"))
    results = [result for p in paths if (result := json.loads(p.read_text()))["preset"] in names]
    behind = differences_to(rows[0].preset, results, groups_of(open_task(TASK).test))
    equal = {name for name, by in behind.items() if by.interval and by.interval[0] <= 0}
    return sorted({rows[0].preset, *equal})


def overhead_of(cost: Mapping[str, Any]) -> str:
    """The share of a comparison's time that was overhead, in words."""
    return f"overhead {cost['overhead']:.1%}" if "overhead" in cost else "overhead unknown"


def _timed(folder: Path, work: Callable[[], Compared]) -> tuple[Compared, float | None]:
    """A comparison in a folder, and its wall-clock seconds, stored with it; None if interrupted."""
    kept = folder.with_name(f"{folder.name}.seconds")
    is_new, begin = not folder.exists(), time.monotonic()
    made = work()
    if is_new:
        kept.write_text(f"{time.monotonic() - begin:.1f}\n")
    return made, float(kept.read_text()) if kept.exists() else None


def _rows(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The data that decide which winner is right."""
    return [{key: row.get(key) for key in ("preset", "error", "interval")} for row in board["rows"]]


def _write(found: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text_atomically(RESULTS / "seeds.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
