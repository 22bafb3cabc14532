"""Runge-Kutta steps are of fourth order, also where forces depend on velocities."""

import math

import pytest
import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import StepControl, advance
from spacetime_en.nn.physics.runge_kutta import RungeKutta
from tests.helpers import particles


def damped(pairs, x, v):
    """x'' = -x - v / 2."""
    return v, -x - v / 2


def errors(steps, step_fraction=None):
    graph = particles(L=1)
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr)
    x, v, time = graph.x[:, 0], graph.v[:, 0], 2.0
    control = StepControl(steps, 10_000, step_fraction)
    legs = [(torch.full((3,), time).double(), control)]
    ((found, _),) = advance(RungeKutta(damped), pairs, x, v, legs)
    w = math.sqrt(15) / 4
    decay, cos, sin = math.exp(-time / 4), math.cos(w * time), math.sin(w * time)
    exact = decay * (x * cos + (v + x / 4) / w * sin)
    return (found - exact).abs().max()


def test_halving_the_step_divides_the_error_by_sixteen():
    assert 13 < errors(20) / errors(40) < 19


@pytest.mark.parametrize("step_fraction", [0.05, 0.2])
def test_steps_adapt(step_fraction):
    assert errors(2, step_fraction) < 1e-4 < errors(2)
