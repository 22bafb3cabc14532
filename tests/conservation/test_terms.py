import dataclasses

import pytest
import torch

from spacetime_en.conservation.paths import Paths
from spacetime_en.conservation.terms import kinds_of, term_parts, wedge
from spacetime_en.geometry import random_rotation


@pytest.fixture
def paths():
    g = torch.Generator().manual_seed(0)
    x, v = torch.randn(2, 3, 4, 5, 3, generator=g, dtype=torch.float64)
    mass = torch.rand(3, 5, generator=g, dtype=torch.float64) + 0.5
    edge = torch.rand(3, 5, 5, generator=g, dtype=torch.float64)
    present = torch.tensor([[True] * 5, [True] * 4 + [False], [True] * 5])
    return Paths(x, v, present, {"mass": mass}, {"edge": edge + edge.mT})


def totals(paths, kind):
    return {name: part.sum(2) for group in term_parts(paths, kind) for name, part in group.items()}


def test_terms_by_hand(paths):
    found = totals(paths, "scalar")
    mass, edge = paths.nodes["mass"], paths.pairs["edge"]
    kinetic = sum(mass[1, i] * paths.v[1, 2, i].square().sum() / 2 for i in range(4))
    potential = sum(
        edge[1, i, j] / (paths.x[1, 2, i] - paths.x[1, 2, j]).norm()
        for i in range(4)
        for j in range(i)
    )
    assert found["mass |v|²/2"][1, 2] == pytest.approx(float(kinetic))
    assert found["edge / r"][1, 2] == pytest.approx(float(potential))
    assert {name for name in found if name.startswith("mass_i mass_j")} == {
        f"mass_i mass_j {f}" for f in ("/ r²", "/ r", "log r", "r", "r²")
    }


def test_the_angular_momentum_in_space_is_the_cross_product():
    x, v = torch.randn(2, 7, 3)
    xy, xz, yz = wedge(x, v).unbind(-1)
    torch.testing.assert_close(torch.stack([yz, -xz, xy], -1), torch.linalg.cross(x, v))


def test_scalars_stay_and_vectors_turn_along(paths):
    q = random_rotation(3, torch.Generator().manual_seed(0))
    order = torch.tensor([0, 3, 1, 2, 4])
    moved = dataclasses.replace(
        paths,
        x=(paths.x @ q.T + 3.0)[:, :, order],
        v=(paths.v @ q.T)[:, :, order],
        present=paths.present[:, order],
        nodes={name: w[:, order] for name, w in paths.nodes.items()},
        pairs={name: a[:, order][:, :, order] for name, a in paths.pairs.items()},
    )
    for kind in kinds_of(paths):
        before, after = totals(paths, kind), totals(moved, kind)
        assert list(before) == list(after)
        for name, value in before.items():
            if kind == "vector":
                value = value @ q.T
            if kind == "bivector":  # (as a pseudovector turns under rotations)
                value, after[name] = (
                    torch.stack([t[..., 2], -t[..., 1], t[..., 0]], -1)
                    for t in (value, after[name])
                )
                value = value @ q.T
            torch.testing.assert_close(after[name], value)


def test_a_box_has_no_centre(paths):
    box = dataclasses.replace(paths, box=10 * torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    assert kinds_of(box) == ("scalar", "vector")
    assert not any("y" in name for name in totals(box, "scalar"))
    line = dataclasses.replace(paths, x=paths.x[..., :1], v=paths.v[..., :1])
    assert kinds_of(line) == ("scalar", "vector")
