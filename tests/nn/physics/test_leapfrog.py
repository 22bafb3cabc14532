"""Leapfrog steps are reversible, and of second order."""

import torch

from spacetime_en.nn.layers.neighbourhood import Neighbourhood
from spacetime_en.nn.physics.force import Pairs
from spacetime_en.nn.physics.integration import StepControl, advance
from spacetime_en.nn.physics.leapfrog import Leapfrog
from tests.nn.samples import Law, far_apart


def test_leapfrog_is_reversible_and_of_second_order():
    graph = far_apart(L=1, B=4)
    pairs = Pairs(Neighbourhood.of(graph), graph.edge_attr, softening=0.1)
    x, v, time = graph.x[:, 0], graph.v[:, 0], torch.ones(4, dtype=torch.float64)

    def end(steps, x=x, v=v):
        legs = [(time, StepControl(steps, steps, None))]
        return advance(Leapfrog(Law()), pairs, x, v, legs)[0]

    there = end(10)
    back = end(10, there[0], -there[1])
    torch.testing.assert_close(back[0], x, rtol=0, atol=1e-12)
    exact = end(2_000)[0]
    coarse, fine = ((end(steps)[0] - exact).abs().max() for steps in (50, 100))
    assert 3 < coarse / fine < 5
