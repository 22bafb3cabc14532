"""How well the true force law forecasts charged particles: a bound for learned ones.

``python -m benchmarks.oracle egnn-nbody`` and ``python -m benchmarks.oracle charged`` print:

- the generator itself, from the last frame on. It clips each component of a force, which is not
  isotropic, so that no exactly equivariant model can equal it;
- the generator with unknown axes. If the data are isotropic, the mean of its forecasts over all
  rotations is the best possible exactly equivariant forecast. Its error is estimated from a number
  of random axes and corrected for their number, so that it is unbiased;
- the force clipped by its length, at the level that is best on the validation windows: the closest
  equivariant pair force.
"""

import argparse

import numpy as np
import torch
from torch import Tensor

from spacetime_en.data.datasets.registry import load_task
from spacetime_en.data.simulation.simulator import integrate
from spacetime_en.data.simulation.systems import SYSTEMS
from spacetime_en.geometry import random_rotation
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.metrics import mse, summary
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import PairForce, Pairs
from spacetime_en.nn.physics.integration import StepControl, advance
from spacetime_en.nn.physics.leapfrog import Leapfrog

SYSTEM = SYSTEMS["charged"]
LEVELS = (100.0, 110.0, 120.0, 130.0, 140.0, 150.0)


def generated(windows: SpacetimeGraph, charge: Tensor, axes: Tensor) -> Tensor:
    """The particles' positions by the generator if its axes are `axes`, (W, 1, N, n)."""
    last = windows.frame(windows.last_frame).to(torch.float64)
    steps = np.array([round(float(windows.horizon.mean()) / SYSTEM.dt)])
    x, v = ((t[:, 0] @ axes.mT).numpy() for t in (last.x, last.v))
    ends, _ = integrate(SYSTEM, x, v, {"charge": charge.numpy()}, steps)
    return torch.from_numpy(ends) @ axes


class ByLength(PairForce):
    """Coulomb's law, with the force of a pair clipped to length `level`."""

    def __init__(self, level: float) -> None:
        super().__init__(features=1, hidden=1)
        self.level = level

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        return s * r.square().reciprocal().clamp(max=self.level)


def forecasts(force: PairForce, windows: SpacetimeGraph, control: StepControl) -> Tensor:
    """Positions at the target time, in double precision, (W, 1, N, n)."""
    batches = []
    for first in range(0, len(windows), 500):
        graph = windows[first : first + 500]
        graph = graph.frame(graph.last_frame).to(torch.float64)
        assert graph.edge_attr is not None
        pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening=1e-9)
        with torch.no_grad():
            legs = [(graph.horizon[:, 0], control)]
            ((x, _),) = advance(Leapfrog(force), pairs, graph.x[:, 0], graph.v[:, 0], legs)
        batches.append(x)
    return torch.cat(batches).unsqueeze(1)


def show(name: str, errors: Tensor) -> None:
    print(f"{name:24}", *(f"{key} {value:.2e}" for key, value in summary(errors).items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("egnn-nbody", "charged"))
    parser.add_argument("--target-steps", type=int, help="by default the task's")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument(
        "--step-fraction", type=float, default=0.1, help="of the shortest time, by length"
    )
    parser.add_argument("--axes", type=int, default=48, help="how many random ones")
    parser.add_argument("--windows", type=int, default=2_000, help="at most so many")
    given = parser.parse_args()
    sizes = {} if given.target_steps is None else {"target_steps": given.target_steps}
    if given.task == "charged":
        sizes["nodes"] = given.nodes
    task = load_task(given.task, **sizes)
    control = StepControl(16, 20_000, given.step_fraction)
    val, test = (windows[: given.windows] for windows in (task.val, task.test))
    graph, target = test
    truth = target.x.to(torch.float64)
    runs, _ = task.test.locate()
    charge = torch.from_numpy(np.asarray(task.test.trajectories.charge[:])[runs[: len(graph)]])
    charge = charge.to(torch.float64)
    show("the generator", mse(generated(graph, charge, torch.eye(3, dtype=torch.float64)), truth))
    draw = torch.Generator().manual_seed(0)
    turned = torch.stack(
        [
            generated(graph, charge, random_rotation(3, draw).to(torch.float64))
            for _ in range(given.axes)
        ]
    )
    # The mean over all axes would be closer to the truth by its sampling variance over a few axes.
    excess = turned.var(0).mean((1, 2, 3)) / given.axes
    floor = mse(turned.mean(0), truth) - excess
    uncertain = float(floor.std()) / len(floor) ** 0.5
    print(f"{'mean over all axes':24} mean {float(floor.mean()):.3g} ± {uncertain:.1g}", flush=True)

    def errors(force: PairForce, examples: Example) -> Tensor:
        there = forecasts(force, examples[0], control)
        return mse(there, examples[1].x.to(torch.float64))

    level = min(LEVELS, key=lambda level: float(errors(ByLength(level), val).mean()))
    show(f"by length, {level:g}", errors(ByLength(level), test))


if __name__ == "__main__":
    main()
