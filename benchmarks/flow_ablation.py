"""Ablation of set-flow on egnn-nbody: python benchmarks/flow_ablation.py.

Every row is the same training with one idea removed; seed 0, the same budget of processor time.
Prints the test error (position MSE: mean, median, 90th percentile) of the weights with the lowest
validation error.
"""

import argparse
import math
from typing import Any

import torch

from spacetime_en._util.errors import InputError
from spacetime_en.data.datasets.registry import load_task
from spacetime_en.evaluation import measure_errors
from spacetime_en.nn.models.flow import Flow
from spacetime_en.nn.models.motion import Curriculum
from spacetime_en.nn.physics.force import PairForce
from spacetime_en.training import TrainingSettings, fit
from spacetime_en.training.settings import PRESET_SETTINGS

FORCE_OF_R = "force of r, not of log r"
# By name: changes to the curriculum, and to the model's settings.
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "set-flow": ({}, {}),
    "no softening": ({"softening": (1e-3, 1e-3)}, {}),
    "no smooth start": ({"equal_steps_until": 0.0}, {}),
    "squared errors": ({"outlier_limit": (1e6, 1e6)}, {}),
    "gradients unbounded": ({"max_gradient": math.inf}, {}),
    "50 equal steps": ({}, {"steps": 50, "step_fraction": None}),
    FORCE_OF_R: ({}, {}),
}


class PlainForce(PairForce):
    """A force that is the network's own output, as a function of r."""

    def strength(self, r: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        force: torch.Tensor = self.phi(torch.cat([r, s], dim=-1))
        return force


def build(name: str) -> Flow:
    """The model of a row."""
    curriculum, settings = ROWS[name]
    torch.manual_seed(0)
    model = Flow(**settings)
    model.curriculum = Curriculum(**curriculum)
    if name == FORCE_OF_R:
        force = PlainForce(features=1, hidden=model.settings["hidden"])
        force.load_state_dict(model.force.state_dict())
        model.force = force
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-time", default="2m", help="of each row")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = load_task("egnn-nbody")
    settings = TrainingSettings(
        **PRESET_SETTINGS["set-flow"],
        alpha=0.0,
        max_time=given.max_time,
        clock="cpu",
        validate_every=240,
    )
    for name in given.rows:
        model = build(name)
        try:
            fit(model, task, settings, display=False)
        except InputError as error:
            print(f"{name:26} failed: {error}", flush=True)
            continue
        mse = measure_errors(model, task.test, 500)[0].summary()["position_mse"]
        print(f"{name:26}", *(f"{key} {value:.2e}" for key, value in mse.items()), flush=True)


if __name__ == "__main__":
    main()
