"""The cost of set-flow against EGNN: python -m benchmarks.flow_cost [--gas 20000 --horizon 0.1].

A training step at N = 5, both models in turn on the same batches. The stages of the curriculum
differ in cost: at first equal steps over the window alone, then adaptive steps to the target.

With --gas, forecasts of one periodic gas of that many nodes with 20 neighbours each: sixteen equal
steps, then adaptive ones (run once: they may be thousands). These are measured in processor time of
one thread, because other work on the machine disturbs long runs.

With --crowd, a training step on that many windows of zara1, those with most people: its memory and
time, with activations recomputed in the backward pass and with them kept.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from benchmarks.speed import forecast, gas
from benchmarks.timing import side_by_side
from spacetime_en import Forecast, SpacetimeGraph, build_model
from spacetime_en.data.datasets.registry import load_task
from spacetime_en.nn.forecaster import Forecaster
from spacetime_en.nn.physics import leapfrog
from spacetime_en.training.batches import Batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--gas", type=int, metavar="NODES", help="forecasts of a gas instead")
    parser.add_argument("--horizon", type=float, default=0.1, help="of the gas")
    parser.add_argument("--crowd", type=int, metavar="WINDOWS", help="a step on people instead")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.gas:
        forecasts(given.gas, given.horizon, given.repeats)
    elif given.crowd:
        crowd(given.crowd)
    else:
        training_steps(given.batch_size, given.repeats)


def forecasts(nodes: int, horizon: float, repeats: int) -> None:
    """Forecasts of a gas at density 1, with speeds about 1."""
    graph = gas(nodes, L=1).replace(horizon=horizon)
    equal = Forecaster.from_pretrained("pretrained:charged", step_fraction=None, steps=16)
    runs = {"egnn": forecast(build_model("egnn").eval(), graph), "flow": forecast(equal, graph)}
    turns = [{name: seconds(run) for name, run in runs.items()} for _ in range(repeats + 1)]
    egnn, flow = (median(turn[name] for turn in turns[1:]) for name in runs)
    print(f"{nodes:,} nodes, {int(graph.edge_mask.sum()):,} edges, horizon {horizon:g}")
    print(f"egnn, one frame: {egnn:.2f} s")
    print(f"set-flow, 16 equal steps: {flow:.2f} s, {flow / egnn:.1f} of egnn's")
    for law, model in (
        ("no force", build_model("set-flow").eval()),
        ("charges", Forecaster.from_pretrained("pretrained:charged")),
    ):
        steps: list[int] = []
        model.force.register_forward_hook(lambda *_, steps=steps: steps.append(1))
        taken = seconds(forecast(model, graph))
        what = f"set-flow, {law}, {len(steps) - 1:,} adaptive steps"
        print(f"{what}: {taken:.1f} s, {taken / egnn:.0f} of egnn's", flush=True)


def crowd(windows: int) -> None:
    """A training step in the sharp stage, on paths of twelve target times."""
    batches = Batches(load_task("zara1").train, windows, seed=0)
    batch = max(batches, key=lambda b: b.graph.edge_mask.numel())
    torch.manual_seed(0)
    model = build_model("set-flow", like=batch.graph).train()
    model.set_progress(0.8)
    torch.nn.init.normal_(model.force.phi[-1].weight, std=0.05)  # an untrained law has zero forces
    print(f"{len(batch.graph)} windows of {batch.graph.x.shape[2]} people, twelve target times")
    for what, limit in (("computed again", leapfrog.RECOMPUTE_ABOVE), ("kept", 1 << 62)):
        leapfrog.RECOMPUTE_ABOVE = limit
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken = seconds(lambda: model.losses(batch.graph, batch.target, 1.0).mean().backward())
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"activations {what}: {more / 2**20:.2f} GiB more, {taken:.1f} s", flush=True)


def seconds(run: Callable[[], None]) -> float:
    """Processor time."""
    start = time.process_time()
    run()
    return time.process_time() - start


def training_steps(batch_size: int, repeats: int) -> None:
    flow = Forecaster.from_pretrained("pretrained:charged").train()
    egnn = build_model("egnn").train()
    for task, target_steps in (("egnn-nbody", 10), ("charged", 100), ("charged", 1_000)):
        graph, target = load_task(task, target_steps=target_steps).train[:batch_size]
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
    model.set_progress(used)
    model.zero_grad()
    model.losses(graph, target, 1.0).mean().backward()


if __name__ == "__main__":
    main()
