"""How well the true law of force forecasts charged particles: what is left for a learned one.

``python benchmarks/oracle.py egnn-nbody --horizon 1000`` prints two rows, both from the exact
force in the library's own integrator:

- clipped by component, as the generator does it. That clip is not isotropic, so that no exactly
  equivariant model can be this force;
- clipped by length, at the level that is best on the validation windows: the nearest that an
  equivariant pair force comes.
"""

import argparse

import torch
from torch import Tensor

from spacetime_en.data.systems import SYSTEMS
from spacetime_en.data.tasks import load_task
from spacetime_en.data.windows import Windows
from spacetime_en.metrics import mse, summary
from spacetime_en.nn.force import PairForce, Pairs
from spacetime_en.nn.leapfrog import Pace, leapfrog
from spacetime_en.nn.neighbourhood import Neighbourhood

CLIP = SYSTEMS["charged"].max_force
LEVELS = (100.0, 110.0, 120.0, 130.0, 140.0, 150.0)


class ByComponent(PairForce):
    """The generator's: Coulomb's law, each component of the sum clipped."""

    def __init__(self) -> None:
        super().__init__(numbers=1, hidden=1)

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        return s / r.square()

    def forward(self, x: Tensor, pairs: Pairs, softening: float) -> Tensor:
        return super().forward(x, pairs, softening).clamp(-CLIP, CLIP)


class ByLength(PairForce):
    """Coulomb's law, the force of a pair no longer than `level`."""

    def __init__(self, level: float) -> None:
        super().__init__(numbers=1, hidden=1)
        self.level = level

    def strength(self, r: Tensor, s: Tensor) -> Tensor:
        return s * r.square().reciprocal().clamp(max=self.level)


def errors(force: PairForce, windows: Windows, pace: Pace) -> Tensor:
    """The position MSE of each window, in double precision."""
    found = []
    for first in range(0, len(windows), 500):
        graph, target = windows[first : first + 500]
        graph = graph.frame(graph.last_frame).to(torch.float64)
        assert graph.edge_attr is not None
        pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
        with torch.no_grad():
            x, _ = leapfrog(force, pairs, graph.x[:, 0], graph.v[:, 0], graph.horizon, pace, 1e-9)
        found.append(mse(x, target.x.to(torch.float64)))
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("egnn-nbody", "charged"))
    parser.add_argument("--horizon", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.1, help="of the shortest time")
    given = parser.parse_args()
    sizes = {"horizon": given.horizon}
    if given.task == "charged":
        sizes["nodes"] = given.nodes
    task = load_task(given.task, **sizes)
    pace = Pace(16, 20_000, given.share)
    level = min(LEVELS, key=lambda level: float(errors(ByLength(level), task.val, pace).mean()))
    for name, force in (
        ("by component", ByComponent()),
        (f"by length, {level:g}", ByLength(level)),
    ):
        found = summary(errors(force, task.test, pace))
        print(f"{name:20}", *(f"{key} {value:.2e}" for key, value in found.items()))


if __name__ == "__main__":
    main()
