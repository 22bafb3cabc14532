"""The value of a longer history when observations are noisy, next to the Bayes floor.

``python -m benchmarks.history --target-steps 100 --length 1 3 10 30 --out FILE.png`` trains models
on charged-noisy with windows of L frames, each for the same time on one core, and prints their
errors against the clean targets of the test windows.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.ticker import LogLocator

from benchmarks.noise_floor import floor
from spacetime_en import build_model
from spacetime_en.data.datasets.registry import load_task
from spacetime_en.evaluation import measure_errors
from spacetime_en.report.plots import new_figure
from spacetime_en.training import TrainingSettings, fit
from spacetime_en.training.settings import PRESET_SETTINGS

# (SET as in our tables: its best learning rate there, and diverging steps skipped.)
TRAINING = {
    "set": dict(lr=1e-3, batch_size=32, schedule="cosine", warmup=0.05, skip=20),
    "set-2": PRESET_SETTINGS["set-2"],
}


def trained(preset: str, length: int, target_steps: int, max_time: str) -> dict[str, float]:
    """Errors of a preset against the clean target, after `max_time` of training."""
    sizes = {"length": length, "target_steps": target_steps}
    noisy, clean = (
        load_task("charged-noisy", targets=targets, **sizes) for targets in ("observed", "clean")
    )
    torch.manual_seed(0)
    model = build_model(preset, like=noisy.train[:1][0])
    settings = TrainingSettings(**TRAINING[preset], max_time=max_time, clock="cpu", seed=0)
    fit(model, noisy, settings, display=False)
    return measure_errors(model, clean.test, 100)[0].summary()["position_mse"]


def draw(curves: dict[str, list[float]], lengths: list[int], out: Path) -> None:
    """Draw errors against the number of observed frames."""
    figure = new_figure(5, 3.5)
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.loglog(lengths, values, "k:" if name == "floor" else "o-", label=name)
    axes.set(xlabel="frames observed", ylabel="position MSE, clean target")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.legend(frameon=False)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target-steps", type=int, default=100)
    parser.add_argument("--length", type=int, nargs="+", default=[1, 3, 10, 30])
    parser.add_argument("--presets", nargs="+", default=list(TRAINING), choices=list(TRAINING))
    parser.add_argument("--max-time", default="5m", help="of each training")
    parser.add_argument("--windows", type=int, default=2_000, help="for the floor")
    parser.add_argument("--out", type=Path, help="a picture")
    given = parser.parse_args()
    torch.set_num_threads(1)
    curves: dict[str, list[float]] = {}
    for length in given.length:
        for preset in given.presets:
            errors = trained(preset, length, given.target_steps, given.max_time)
            curves.setdefault(preset, []).append(errors["mean"])
            row = ", ".join(f"{key} {value:.4g}" for key, value in errors.items())
            print(f"L = {length:2}: {preset:5} {row}", flush=True)
        least = floor(length, given.target_steps, given.windows, samples=100)["error of the mean"]
        curves.setdefault("floor", []).append(least)
        print(f"L = {length:2}: {'floor':5} mean {least:.4g}", flush=True)
    if given.out is not None:
        draw(curves, given.length, given.out)
        print(given.out)


if __name__ == "__main__":
    main()
