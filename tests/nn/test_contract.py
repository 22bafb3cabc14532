"""Every preset keeps the contract, and models that break it are found out."""

import pytest
import torch

from spacetime_en import PRESETS, StraightLine, Symmetries
from spacetime_en.nn.presets import Preset
from spacetime_en.nn.rollout import with_times
from tests.nn import contract


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("preset", PRESETS)
def test_contract(preset, check):
    check(preset)


# (Ridge, which set-2 chooses here, is for windows whose last frame is there.)
OF_ALL_KINDS = {"set-2": {"base": "straight-line"}, "set": {}, "egnn": {}, "set-flow": {}}
OF_ALL_KINDS |= {"tfn": {}, "se3-transformer": {}}


@pytest.mark.parametrize("preset", OF_ALL_KINDS)
@pytest.mark.parametrize("kind", contract.KINDS)
def test_these_take_graphs_of_all_kinds(preset, kind):
    graph = contract.KINDS[kind]()
    model = contract.build(preset, graph, contract.SIZES | OF_ALL_KINDS[preset])
    assert not contract.is_refused(model, graph)
    assert not contract.is_refused(model, with_times(graph, contract.PATH))


class Pushing(StraightLine):
    """Claims every symmetry, and pushes all nodes along the first axis."""

    def forecast(self, graph):
        line = super().forecast(graph)
        push = torch.zeros_like(line.x)
        push[..., 0] = 0.36
        return line._replace(x=line.x + push)


class Modest(StraightLine):
    """Claims less than it has."""

    @property
    def symmetries(self):
        return Symmetries(translation=True, rotation=False, permutation=True)


class Leaking(StraightLine):
    """Takes the mean over all nodes, missing ones included."""

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(x=line.x + line.v.mean(2, keepdim=True))


class Wrapped(StraightLine):
    """Has a centroid in a periodic box, where there is none."""

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(v=line.v + line.x - line.x.mean(2, keepdim=True))


class Backwards(StraightLine):
    """Has the times of a path in the wrong order."""

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(x=line.x.flip(1), v=line.v.flip(1))


class Singular(StraightLine):
    """Its gradient is infinite for nodes at rest."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forecast(self, graph):
        line = super().forecast(graph)
        speed = (self.weight * line.v).square().sum(-1, keepdim=True).sqrt()
        return line._replace(v=line.v * (1 + speed))


class Forgetful(StraightLine):
    """Keeps a number that is drawn anew whenever it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.number = float(torch.rand(()))

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(v=line.v * self.number)


class Crashing(StraightLine):
    """Is tied to a number of nodes, and does not say so."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(nodes, 1))

    @property
    def symmetries(self):
        return Symmetries(translation=True, rotation=True, permutation=False)

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(v=line.v * self.weight)


class Branching(StraightLine):
    """Asks for numbers, which are not there while it is exported."""

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(v=2 * line.v if bool(line.v.any()) else line.v)


class Flat(StraightLine):
    """Takes it that space has three dimensions."""

    def forecast(self, graph):
        line = super().forecast(graph)
        return line._replace(v=line.v + 0 * torch.linalg.cross(line.v, line.v))


BREACHES = [
    (Pushing, contract.check_symmetries, "claims rotation equivariance, but its relative error"),
    (Modest, contract.check_symmetries, "does not claim rotation equivariance, but has it"),
    (Leaking, contract.check_padding, "not close"),
    (Wrapped, contract.check_images, "not close"),
    (Backwards, contract.check_paths, "not close"),
    (Singular, contract.check_gradients, "the gradient of weight is not finite"),
    (Forgetful, contract.check_saving, "forecasts other bits"),
    (Crashing, contract.check_refusals, "size of tensor"),
    (Branching, contract.check_export, "data-dependent"),
    (Flat, contract.check_building, "dimension"),
]


@pytest.mark.parametrize(("model", "check", "words"), BREACHES)
def test_a_registered_model_that_breaks_the_contract_is_found_out(model, check, words, monkeypatch):
    monkeypatch.setitem(PRESETS, "broken", Preset(model, {}))
    with pytest.raises(Exception, match=words):
        check("broken")


def test_every_check_can_fail():
    assert {check for _, check, _ in BREACHES} == {*contract.CHECKS}
