"""Does a short comparison name the right winner? On the demo's data, for five seeds.

    python benchmarks/compare_seeds.py --out DIR                     # about five hours on two cores
    python benchmarks/compare_seeds.py --out DIR --long 1m --seeds 2

The right winner is the model with the lowest test error when each has the long budget, or one that
is no worse within its interval there. Prints one line for each seed, and what the comparison itself
costs. Run it again to go on after an interruption.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spacetime_en.compare import compare
from spacetime_en.report.demo import TASK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the comparisons")
    parser.add_argument("--short", default="30s", help="budget whose winner is checked")
    parser.add_argument("--long", default="5m", help="budget that tells which winner is right")
    parser.add_argument("--seeds", type=int, default=5, help="number of short comparisons")
    options = parser.parse_args()
    reference = compare(TASK, options.out / "long", budget=options.long).leaderboard
    right = {reference.rows[0].preset, *(row.preset for row in reference.equals)}
    print(f"at {options.long}: {', '.join(sorted(right))}")
    named = 0
    for seed in range(options.seeds):
        # (Three trainings each: the next comparison begins with the next three seeds.)
        folder = options.out / f"short-{seed}"
        board = compare(TASK, folder, budget=options.short, seed=3 * seed).leaderboard
        named += board.chosen in right
        print(f"seed {seed}: {board.chosen}{'' if board.chosen in right else ', which is wrong'}")
    print(f"{named} of {options.seeds} right at {options.short}")


if __name__ == "__main__":
    main()
