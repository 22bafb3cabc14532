"""Conserved quantities are found, and nothing else is."""

import dataclasses

import numpy as np
import pytest
import torch

from spacetime_en import InputError
from spacetime_en.conservation.search import find_conserved
from spacetime_en.data import Task, Trajectories
from spacetime_en.geometry import random_orthogonal
from tests.conservation.systems import WINDOWS, both_paths, chained, simulated

LAWS = {  # the potential, and its strength
    "charged": ("charge_i charge_j / r", 1.0),
    "gravity": ("mass_i mass_j / r", -1.0),
    "springs": ("spring_ij r²", 0.05),
}


@pytest.mark.parametrize("name", LAWS)
def test_energy_and_momenta_are_found_and_nothing_else(name):
    found = find_conserved(*both_paths(simulated(name)))
    by_name = {one.quantity.name: one for one in found.conserved}
    assert list(by_name) == ["energy", "momentum", "angular momentum"]
    assert len(found.conserved) == 3
    assert all(best > 0.1 for best in found.rejected.values())
    assert set(found.rejected) == {"scalar", "vector", "bivector"}
    mass = "mass " if name == "gravity" else ""
    energy = by_name["energy"].quantity.coefficients
    term, strength = LAWS[name]
    assert energy[f"{mass}|v|²/2"] == 1.0
    # (Gravity is softened, and 1 / r is not quite its potential.)
    assert energy[term] == pytest.approx(strength, rel=0.1 if mass else 0.01)
    assert by_name["momentum"].quantity.coefficients == {f"{mass}v": 1.0}
    assert by_name["angular momentum"].variation < 1e-4


def test_momentum_is_found_though_all_systems_are_at_rest():
    """Of gravity it is 0 in every system: variance between paths could not tell."""
    train, held_out = both_paths(simulated("gravity"))
    total = (train.mass[:, None, :, None] * train.v).sum(2)
    assert total.abs().max() < 1e-5
    names = [one.quantity.name for one in find_conserved(train, held_out).conserved]
    assert "momentum" in names


def test_springs_conserve_in_each_connected_component():
    """As a whole they do so, too; but of single components the search has more paths."""
    train, _ = both_paths(simulated("springs"))
    parts = train.connected()
    assert len(parts) > len(train)
    assert int(parts.present.sum(1).min()) == 2
    momentum = (parts.v * parts.present[:, None, :, None]).sum(2)
    assert (momentum - momentum[:, :1]).abs().max() < 1e-5


def test_in_the_plane_too():
    found = find_conserved(*both_paths(simulated("charged", dims=2)))
    names = [one.quantity.name for one in found.conserved]
    assert names == ["energy", "momentum", "angular momentum"]


def test_a_system_without_attributes():
    """A spring between any two: r² with weight 1. Each node has its own angular momentum."""
    found = find_conserved(*both_paths(chained())).conserved
    assert [one.quantity.name for one in found] == ["energy", "momentum", "angular momentum"]
    assert found[0].quantity.coefficients["r²"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("mass", [1.0, 3.0])
def test_what_holds_in_any_state_is_no_law(mass):
    """Two bodies are opposite each other: sums of u |u|² are 0 if their masses are the same."""
    train, held_out = both_paths(chained())

    def of_two(paths):
        """Two bodies whose distance swings as that of two nodes does; their centre moves on."""
        share = torch.tensor([1.0, -mass]).double()[:, None] / (1 + mass)  # of bodies, (2, 1)
        x, v = ((t[:, :, :1] - t[:, :, 1:2]) * share for t in (paths.x, paths.v))
        nodes = {"mass": torch.tensor([mass, 1.0]).double().expand(len(x), 2)}
        there = torch.ones(len(x), 2, dtype=torch.bool)
        v = v + paths.v[:, :1, 2:3]
        return dataclasses.replace(paths, x=x, v=v, present=there, nodes=nodes)

    found = find_conserved(of_two(train), of_two(held_out)).conserved
    assert [one.quantity.name for one in found] == ["energy", "momentum", "angular momentum"]


def test_what_is_braked_conserves_nothing():
    found = find_conserved(*both_paths(chained(friction=1.0)))
    assert found.conserved == []
    assert set(found.rejected) == {"scalar", "vector", "bivector"}


def test_what_is_pushed_as_a_whole_conserves_angular_momentum_alone():
    """The field has no torque about the centre of mass, but gives momentum and energy."""
    found = find_conserved(*both_paths(chained(field=3.0))).conserved
    assert [one.quantity.name for one in found] == ["angular momentum"]


def test_turned_moved_and_renumbered_the_findings_are_the_same():
    train, held_out = both_paths(simulated("gravity"))
    q = random_orthogonal(3, torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4, 1, 2])

    def moved(paths):
        return dataclasses.replace(
            paths,
            x=(paths.x @ q.T + 7.0)[:, :, order],
            v=(paths.v @ q.T)[:, :, order],
            nodes={name: w[:, order] for name, w in paths.nodes.items()},
        )

    before, after = (
        find_conserved(*pair) for pair in ((train, held_out), (moved(train), moved(held_out)))
    )
    for one, other in zip(before.conserved, after.conserved, strict=True):
        assert one.quantity.coefficients == pytest.approx(other.quantity.coefficients, rel=1e-6)
        assert one.variation == pytest.approx(other.variation, rel=1e-3, abs=1e-6)
    assert before.rejected == pytest.approx(after.rejected, rel=1e-2)


def test_other_units_change_coefficients_by_their_dimension():
    train, held_out = both_paths(simulated("springs"))
    length, time = 1e3, 60.0

    def scaled(paths):
        return dataclasses.replace(paths, x=paths.x * length, v=paths.v * length / time)

    before, after = (
        find_conserved(*pair).conserved
        for pair in ((train, held_out), (scaled(train), scaled(held_out)))
    )
    assert [one.quantity.name for one in after] == [one.quantity.name for one in before]
    strengths = [one[0].quantity.coefficients["spring_ij r²"] for one in (before, after)]
    assert strengths[1] == pytest.approx(strengths[0] / time**2, rel=1e-4)


def test_noise_hides_it():
    task = simulated("charged")
    noisy = [dataclasses.replace(p, v=p.v + torch.randn_like(p.v)) for p in both_paths(task)]
    assert find_conserved(*noisy).conserved == []


def test_too_few_paths():
    train, held_out = both_paths(simulated("charged"))
    with pytest.raises(InputError, match=r"paths: 7 to learn from.*at least 20"):
        find_conserved(train[:7], held_out)
    with pytest.raises(InputError, match="paths: 3 to check on"):
        find_conserved(train, held_out[:3])


def test_straight_lines_conserve_everything_and_are_refused():
    rng = np.random.default_rng(0)
    start, v = rng.standard_normal((2, 100, 1, 3, 2))
    times = np.arange(11.0)
    runs = Trajectories.from_arrays(
        start + v * times[:, None, None], np.repeat(v, 11, axis=1), times=times
    )
    task = Task.from_trajectories(runs, counts=(60, 10, 30), **WINDOWS)
    with pytest.raises(InputError, match="velocities do not change"):
        find_conserved(*both_paths(task))


def test_terms_that_coincide_or_never_vary():
    """All charges are 1, and velocities are positions: x ^ v is 0, and r² a sum of x v."""
    x = np.random.default_rng(0).standard_normal((40, 12, 3, 3)).cumsum(1)
    runs = Trajectories.from_arrays(x, x, attributes={"charge": np.ones((40, 3))})
    task = Task.from_trajectories(runs, length=4, stride=1, target_steps=1)
    found = find_conserved(*both_paths(task))
    assert found.terms["bivector"] == 0
    (identity,) = found.conserved
    assert identity.quantity.coefficients == pytest.approx({"y·u": 1.0, "r²": -1 / 3})
    assert np.isfinite(list(identity.quantity.coefficients.values())).all()
