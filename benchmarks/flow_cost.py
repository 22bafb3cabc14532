"""What set-flow costs beside EGNN: python -m benchmarks.flow_cost [--gas 20000 --horizon 0.1].

A training step at N = 5, both sides in turns on the same batches. The stages of the curriculum
differ: equal steps and the window alone at first, then steps as the data need them, to the target.

With --gas, forecasts of one periodic gas of so many nodes with 20 neighbours each: sixteen equal
steps, then adaptive ones (once: they may be thousands).
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.speed import forecast, gas
from benchmarks.timing import side_by_side
from spacetime_en import Forecast, SpacetimeGraph, build_model
from spacetime_en.data.tasks import load_task
from spacetime_en.nn.forecaster import Forecaster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--gas", type=int, metavar="NODES", help="forecasts of a gas instead")
    parser.add_argument("--horizon", type=float, default=0.1, help="of the gas")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.gas:
        forecasts(given.gas, given.horizon, given.repeats)
    else:
        training_steps(given.batch_size, given.repeats)


def forecasts(nodes: int, horizon: float, repeats: int) -> None:
    """Of a gas at density 1, its speeds about 1."""
    graph = gas(nodes, L=1).replace(horizon=horizon)
    egnn = build_model("egnn").eval()
    equal = Forecaster.from_pretrained("pretrained:charged", share=None, steps=16)
    times = side_by_side(
        {"egnn": forecast(egnn, graph), "set-flow": forecast(equal, graph)}, repeats
    )
    print(f"{nodes:,} nodes, {int(graph.edge_mask.sum()):,} edges, horizon {horizon:g}")
    print(f"egnn, one frame: {times['egnn']:.2f} s")
    show("set-flow, 16 equal steps", times["set-flow"], times["egnn"])
    for name, adaptive in (
        ("set-flow, no force", build_model("set-flow").eval()),
        ("set-flow, charges", Forecaster.from_pretrained("pretrained:charged")),
    ):
        steps: list[int] = []
        adaptive.force.register_forward_hook(lambda *_, steps=steps: steps.append(1))
        start = time.perf_counter()
        forecast(adaptive, graph)()
        taken = time.perf_counter() - start
        show(f"{name}, {len(steps) - 1:,} adaptive steps", taken, times["egnn"])


def show(what: str, taken: float, egnn: float) -> None:
    print(f"{what}: {taken:.2f} s, {taken / egnn:.1f} of egnn's", flush=True)


def training_steps(batch_size: int, repeats: int) -> None:
    flow = Forecaster.from_pretrained("pretrained:charged").train()
    egnn = build_model("egnn").train()
    for task, horizon in (("egnn-nbody", 1_000), ("charged", 1_000), ("charged", 10_000)):
        graph, target = load_task(task, horizon=horizon).train[:batch_size]
        for stage, used in (("smooth", 0.0), ("sharp", 1.0)):
            sides: dict[str, Callable[[], None]] = {
                name: partial(step, model, used, graph, target)
                for name, model in (("set-flow", flow), ("egnn", egnn))
            }
            times = side_by_side(sides, repeats)
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
