"""How well the true force law forecasts charged particles: a bound for learned ones.

``python benchmarks/oracle.py egnn-nbody --target-steps 10`` prints three rows, all from the exact
force in the library's own integrator:

- clipped by component, as the generator does it. That clip is not isotropic, so that no exactly
  equivariant model can be this force;
- clipped by length, at the level that is best on the validation windows: the nearest that an
  equivariant pair force comes;
- clipped by component, but along unknown axes: the mean of the forecasts over random axes is the
  forecast of the best exactly equivariant model. (Its mean error is estimated from a few axes and
  corrected for their number.)
"""

import argparse

import torch
from torch import Tensor

from spacetime_en.data.datasets.registry import load_task
from spacetime_en.data.simulation.systems import SYSTEMS
from spacetime_en.geometry import random_rotation
from spacetime_en.graph import SpacetimeGraph
from spacetime_en.metrics import mse, summary
from spacetime_en.nn.forecaster import Example
from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import PairForce, Pairs
from spacetime_en.nn.physics.leapfrog import StepControl, leapfrog

CLIP = SYSTEMS["charged"].max_force
LEVELS = (100.0, 110.0, 120.0, 130.0, 140.0, 150.0)


class ByComponent(PairForce):
    """The generator's: Coulomb's law, each component of the sum clipped, along `axes`."""

    def __init__(self, axes: Tensor) -> None:
        super().__init__(numbers=1, hidden=1)
        self.axes = axes

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        return s / r.square()

    def forward(self, x_ij: Tensor, r: Tensor, pairs: Pairs) -> Tensor:
        rotated = super().forward(x_ij, r, pairs) @ self.axes.mT
        return rotated.clamp(-CLIP, CLIP) @ self.axes


class ByLength(PairForce):
    """Coulomb's law, the force of a pair no longer than `level`."""

    def __init__(self, level: float) -> None:
        super().__init__(numbers=1, hidden=1)
        self.level = level

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        return s * r.square().reciprocal().clamp(max=self.level)


def forecasts(force: PairForce, windows: SpacetimeGraph, control: StepControl) -> Tensor:
    """Positions at the target time, in double precision, (W, N, n)."""
    batches = []
    for first in range(0, len(windows), 500):
        graph = windows[first : first + 500]
        graph = graph.frame(graph.last_frame).to(torch.float64)
        assert graph.edge_attr is not None
        pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening=1e-9)
        with torch.no_grad():
            x, _ = leapfrog(force, pairs, graph.x[:, 0], graph.v[:, 0], graph.horizon, control)
        batches.append(x)
    return torch.cat(batches)


def show(name: str, errors: Tensor) -> None:
    print(f"{name:24}", *(f"{key} {value:.2e}" for key, value in summary(errors).items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("egnn-nbody", "charged"))
    parser.add_argument("--target-steps", type=int, help="by default the task's")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--step-fraction", type=float, default=0.1, help="of the shortest time")
    parser.add_argument("--axes", type=int, default=8, help="how many random ones")
    parser.add_argument("--windows", type=int, default=2_000, help="at most so many")
    given = parser.parse_args()
    sizes = {} if given.target_steps is None else {"target_steps": given.target_steps}
    if given.task == "charged":
        sizes["nodes"] = given.nodes
    task = load_task(given.task, **sizes)
    control = StepControl(16, 20_000, given.step_fraction)
    val, test = (windows[: given.windows] for windows in (task.val, task.test))

    def errors(force: PairForce, examples: Example) -> Tensor:
        graph, target = examples
        return mse(forecasts(force, graph, control), target.x.to(torch.float64))

    show("by component", errors(ByComponent(torch.eye(3, dtype=torch.float64)), test))
    level = min(LEVELS, key=lambda level: float(errors(ByLength(level), val).mean()))
    show(f"by length, {level:g}", errors(ByLength(level), test))
    generator = torch.Generator().manual_seed(0)
    turned = torch.stack(
        [
            forecasts(ByComponent(random_rotation(3, generator)), test[0], control)
            for _ in range(given.axes)
        ]
    )
    mean = mse(turned.mean(0), test[1].x.to(torch.float64))
    show(f"mean over {given.axes} axes", mean)
    more = turned.var(0).mean((1, 2)) / given.axes  # what the mean over all axes would take away
    print(f"mean over all axes       mean {float((mean - more).mean()):.2e}")


if __name__ == "__main__":
    main()
