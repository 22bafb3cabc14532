"""Scale and time reversal; test_study.py has worlds that break them."""

import numpy as np
import pytest

from benchmarks.symmetry_power import world
from spacetime_en.data import Task, Trajectories
from spacetime_en.symmetries.study import ASKED_ABOUT, find_symmetries
from tests.symmetries.worlds import again


@pytest.mark.parametrize("seed", range(3))
def test_a_node_in_a_trap_may_be_played_backwards(seed):
    task = world(runs=200, seed=seed, nodes=1, trap=0.5)
    found = find_symmetries(task, only=("time reversal",))["time reversal"]
    assert found.verdict != "broken"


def test_windows_of_one_size_do_not_tell_about_scale():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, (200, 1, 1)) + 0.1 * np.arange(7)[:, None]
    phase = np.array([0.0, 2.0])
    x = np.stack([np.cos(angle + phase), np.sin(angle + phase)], axis=-1)
    circles = Trajectories.from_arrays(x + 0.01 * rng.standard_normal(x.shape))
    task = Task.from_trajectories(circles, length=3, stride=1, target_steps=1)
    assert find_symmetries(task)["scale"].verdict == "untested"


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize(("nodes", "gaps"), [(2, 0.1), (3, 0.15), (4, 0.3)])
def test_windows_that_gaps_leave_without_a_node_are_left_out(nodes, gaps, measured):
    task = again(world(runs=300, seed=5, nodes=nodes, gaps=gaps), measured=measured)
    report = find_symmetries(task)
    assert {f.name for f in report.findings if f.p is not None} == set(ASKED_ABOUT)
