"""Calibration of a model with a spread: predicted against actual errors per node.

``python benchmarks/calibration.py RUN --out calibration.png``, for a run of a model with samples
(``spacetime train set-2 --model.samples 20 ...``), on its own test windows. If targets are noisy,
both errors include the noise, since the samples were trained on noisy targets.
"""

import argparse
from pathlib import Path

from spacetime_en._util.errors import InputError
from spacetime_en.evaluation import measure_errors
from spacetime_en.report.plots import new_figure
from spacetime_en.runs.run import Run

GROUPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    run = Run.open(given.run)
    errors, _ = measure_errors(run.model(), run.config.load_task().test, 100)
    groups, total = errors.calibration(GROUPS), errors.calibration(1)
    if groups is None or total is None:
        raise InputError(f"{given.run}: its forecasts have no spread, there is nothing to compare.")
    for row in groups:
        print(f"predicted {row['predicted']:.3g}, actual {row['actual']:.3g}")
    print(f"all: predicted {total[0]['predicted']:.3g}, actual {total[0]['actual']:.3g}")
    figure = new_figure(4.5, 4)
    axes = figure.add_subplot()
    largest = max(value for row in groups for value in row.values())
    axes.plot((0, largest), (0, largest), color="0.6", lw=1)
    axes.plot([row["predicted"] for row in groups], [row["actual"] for row in groups], "o")
    axes.set(xlabel="predicted error of a coordinate", ylabel="actual error (both rms)")
    figure.savefig(given.out, dpi=150)
    print(given.out)


if __name__ == "__main__":
    main()
