"""Overhead of training: `fit` against a bare training loop over prepared batches.

The bare loop does forward, loss, backward, clipping and the optimiser's step, and nothing else, on
batches prepared beforehand. `fit` also builds batches, seeds, sets the learning rate, checks for
NaN, logs (CSV) and displays progress. Both run in one process, in turn, several times; printed are
the median time of a step of each, and the fraction of `fit`'s that is overhead.

    python benchmarks/training_overhead.py [--steps 100] [--repeats 3]
"""

import argparse
import copy
import itertools
import json
import statistics
import tempfile
import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger

from spacetime_en import build_model
from spacetime_en.data import load_task
from spacetime_en.metrics import errors
from spacetime_en.training import TrainingSettings, fit
from spacetime_en.training.batches import Batches


class Clock(pl.Callback):
    """The time at which each step starts."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def on_train_batch_start(self, *_) -> None:
        self.ticks.append(time.perf_counter())


def bare(model, batches) -> list[float]:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    ticks = []
    for batch in batches:
        ticks.append(time.perf_counter())
        x, v = errors(model(batch.graph), batch.target)
        loss = (x + v).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return ticks


def trained(model, task, size: int, steps: int) -> list[float]:
    settings = TrainingSettings(lr=1e-4, batch_size=size, steps=steps, validate_every=10**9)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        fit(model, task, settings, callbacks=[clock], loggers=[CSVLogger(folder)])
    return clock.ticks


def durations(ticks: list[float]) -> list[float]:
    """The durations of all steps but the first, which allocates memory."""
    return [after - before for before, after in itertools.pairwise(ticks[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    task = load_task("charged", counts=(4000, 100, 100))
    graph, _ = task.train[:1]
    results = {}
    for preset, size in (("set", 100), ("egnn", 100), ("egnn", 32), ("mlp", 100)):
        fresh = build_model(preset, like=graph)
        steps = max(10, arguments.steps // (8 if preset == "set" else 1))
        batches = list(Batches(task.train, size, seed=0, stop=steps))
        with_fit, with_loop = [], []
        for _ in range(arguments.repeats):
            with_loop += durations(bare(copy.deepcopy(fresh), batches))
            with_fit += durations(trained(copy.deepcopy(fresh), task, size, steps))
        loop, whole = statistics.median(with_loop), statistics.median(with_fit)
        results[f"{preset}, batch {size}"] = {
            "bare_ms": round(1e3 * loop, 2),
            "fit_ms": round(1e3 * whole, 2),
            "overhead": round(1 - loop / whole, 4),
            "samples_per_second": round(size / whole),
        }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
