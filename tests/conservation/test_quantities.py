import numpy as np
import pytest
import torch

from spacetime_en import build_model
from spacetime_en.conservation.paths import Paths, true_paths
from spacetime_en.conservation.quantities import (
    Combination,
    LearnedEnergy,
    SystemEnergy,
    angular_momentum,
    changes,
    momentum,
)
from spacetime_en.data import SYSTEMS
from spacetime_en.data.simulation.drift import drift_between
from tests.conservation.systems import simulated
from tests.helpers import liven, particles


@pytest.mark.parametrize("name", SYSTEMS)
def test_changes_are_those_of_the_simulator(name):
    task = simulated(name)
    paths, t = true_paths(task.test), task.test.trajectories
    runs = task.test.runs
    attributes = {key: np.asarray(a[runs]) for key, a in t.attributes.items()}
    ends = [(t.x[runs, frame], t.v[runs, frame]) for frame in (0, -1)]
    expected = drift_between(SYSTEMS[name], *ends, attributes)
    w = SYSTEMS[name].coupling(attributes, (len(runs), 5))
    quantities = {
        "momentum": momentum(paths),
        "angular_momentum": angular_momentum(paths),
        "energy": SystemEnergy(SYSTEMS[name], torch.from_numpy(w)),
    }
    for key, quantity in quantities.items():
        found = changes(quantity, paths)[:, -1]
        np.testing.assert_allclose(found, expected[key], rtol=1e-3, atol=2e-6)
    assert expected["energy"].max() < 1e-4


def test_going_straight_keeps_momenta_exactly():
    paths = true_paths(simulated("charged").test)
    times = torch.linspace(0, 5, 4, dtype=torch.float64)[None, :, None, None]
    x, v = paths.x[:, :1] + times * paths.v[:, :1], paths.v[:, :1].expand(-1, 4, -1, -1)
    straight = type(paths)(x, v, paths.present, paths.nodes, paths.pairs)
    for quantity in (momentum(paths), angular_momentum(paths)):
        assert changes(quantity, straight).abs().max() < 1e-12
    potential = Combination("scalar", {"charge_i charge_j / r": 1.0})
    assert changes(potential, straight).mean() > 0.1


def test_names_and_formulas():
    energy = Combination("scalar", {"|v|²/2": 1.0, "charge_i charge_j / r": 0.9981})
    assert energy.name == "energy"
    assert energy.formula == "Σ |v|²/2 + 0.998 Σ charge_i charge_j / r"
    assert Combination("scalar", {"mass |v|²/2": 1.0, "/ r": -2.0}).formula == (
        "Σ mass |v|²/2 − 2.00 Σ 1 / r"
    )
    assert Combination("scalar", {"mass |v|²/2": 1.0}).name == "kinetic energy"
    assert Combination("vector", {"mass v": 1.0}).name == "momentum"
    assert Combination("bivector", {"y∧u": 1.0}).name == "angular momentum"
    assert Combination("scalar", {"|v|²/2": 1.0, "y·u": 0.5}).name is None
    assert Combination("vector", {"charge v": 1.0}).name is None


def test_the_learned_energy_stays_along_the_models_own_paths():
    model = build_model("set-flow", step_fraction=0.01, hidden=8).double().eval()
    liven(model)
    with torch.no_grad():
        model.force.phi[-1].weight.mul_(0.3)
    graph = particles(B=6, N=4, L=1, horizon=torch.tensor([[0.2, 0.5]] * 6))
    with torch.no_grad():
        forecast = model(graph)
    x, v = (torch.cat(pair, dim=1) for pair in ((graph.x, forecast.x), (graph.v, forecast.v)))
    paths = Paths.of(graph, x, v, None)
    found = changes(LearnedEnergy(model, graph), paths)
    kinetic = changes(Combination("scalar", {"|v|²/2": 1.0}), paths)
    assert float(found.max()) < 1e-3
    assert float(kinetic[:, -1].median()) > 30 * float(found.max())
