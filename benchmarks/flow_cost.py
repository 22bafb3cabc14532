"""What a training step of set-flow costs beside one of EGNN, N = 5: python -m benchmarks.flow_cost.

Both sides take turns on the same batches. The stages of the curriculum differ: equal steps and the
window alone at first, then steps as the data need them, to the target.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.timing import side_by_side
from spacetime_en import Forecast, SpacetimeGraph, build_model
from spacetime_en.data.tasks import load_task
from spacetime_en.nn.forecaster import Forecaster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    flow = Forecaster.from_pretrained("pretrained:charged").train()
    egnn = build_model("egnn").train()
    for task, horizon in (("egnn-nbody", 1_000), ("charged", 1_000), ("charged", 10_000)):
        graph, target = load_task(task, horizon=horizon).train[: given.batch_size]
        for stage, used in (("smooth", 0.0), ("sharp", 1.0)):
            sides: dict[str, Callable[[], None]] = {
                name: partial(step, model, used, graph, target)
                for name, model in (("set-flow", flow), ("egnn", egnn))
            }
            times = side_by_side(sides, given.repeats)
            each = ", ".join(f"{name} {1e3 * time:.0f} ms" for name, time in times.items())
            ratio = times["set-flow"] / times["egnn"]
            print(f"{task:10} horizon {float(graph.horizon[0]):2g}, {stage:6}: {each}, {ratio:.2f}")


def step(model: Forecaster, used: float, graph: SpacetimeGraph, target: Forecast) -> None:
    """Loss and gradient at a stage of the training."""
    model.anneal(used)
    model.zero_grad()
    model.losses(graph, target, 1.0).mean().backward()


if __name__ == "__main__":
    main()
