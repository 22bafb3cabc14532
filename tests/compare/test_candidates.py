"""Candidates are found without the test windows, and ordered by cost."""

import dataclasses
import sys

import pytest
import torch

from spacetime_en import Forecaster, InputError
from spacetime_en.compare.candidates import KINDS, Candidate, config_of, find_candidates
from spacetime_en.geometry import FULL_SYMMETRY
from spacetime_en.nn.presets import PRESETS
from spacetime_en.training.settings import PRESET_SETTINGS
from tests.conftest import TINY

SOURCE = {"name": "charged", **TINY}


class Broken(Forecaster):
    """Raises an exception that no input check raises."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forecast(self, graph):
        raise ZeroDivisionError("of one's own")


class Untouchable:
    """A stand-in for the test windows."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_all_that_fit_come_cheapest_first_and_the_test_is_not_looked_at(tiny_task):
    blind = dataclasses.replace(tiny_task)
    object.__setattr__(blind, "test", Untouchable())
    found, reasons = find_candidates(blind, SOURCE, ())
    assert {c.preset for c in found} | set(reasons) == set(PRESETS)
    order = [(KINDS.index(c.kind), c.parameters) for c in found]
    assert order == sorted(order)
    kinds = {c.preset: c.kind for c in found}
    assert (kinds["last-frame"], kinds["ridge"], kinds["set-2"]) == KINDS


def test_what_does_not_fit_or_breaks_is_listed_with_the_reason(tiny_task):
    own = f"{__name__}.Broken"
    found, reasons = find_candidates(tiny_task, SOURCE, [own, "straight-line"])
    assert [c.preset for c in found] == ["straight-line"]
    assert reasons == {own: "ZeroDivisionError: of one's own"}
    with pytest.raises(InputError, match=r"none of these models fits the data \(.*Broken: Zero"):
        find_candidates(tiny_task, SOURCE, [own])


def test_a_package_that_is_missing_is_said_plainly(tiny_task, monkeypatch):
    monkeypatch.setitem(sys.modules, "e3nn", None)
    _, reasons = find_candidates(tiny_task, SOURCE, ["tfn", "linear"])
    assert reasons == {"tfn": "this needs the package e3nn: pip install 'spacetime-en[e3nn]'"}


def test_symmetries_are_those_of_the_architecture_and_those_that_are_taught(tiny_task, monkeypatch):
    def of_transformer(**how):
        ((candidate,), _) = find_candidates(tiny_task, SOURCE, ["transformer"], **how)
        return candidate.symmetries

    assert of_transformer() == FULL_SYMMETRY  # trained with random rotations
    assert not of_transformer(augment=False).rotation  # but not where directions matter
    monkeypatch.setitem(PRESET_SETTINGS, "transformer", {"augment": False})
    assert not of_transformer().rotation


def test_names_that_are_unknown_or_come_twice_are_refused(tiny_task):
    with pytest.raises(InputError, match="did you mean 'set-2'"):
        find_candidates(tiny_task, SOURCE, ["set-3"])
    with pytest.raises(InputError, match="preset: 'mlp' is named twice"):
        find_candidates(tiny_task, SOURCE, ["mlp", "set", "mlp"])
    with pytest.raises(InputError, match=r"Broken' is named twice"):
        find_candidates(tiny_task, SOURCE, [f"{__name__}.Broken", f"{__name__}:Broken"])


def test_settings_are_ours_on_the_papers_task_too(tiny_task):
    config = config_of("set", tiny_task, SOURCE, seed=3, augment=True)
    assert config.training.lr == PRESET_SETTINGS["set"]["lr"]
    assert config.model == {"dropout": 0.0}
    assert (config.training.seed, config.training.clock) == (3, "cpu")
    assert config_of("set-2", tiny_task, SOURCE, augment=True).training.batch_size == 100


def test_windows_are_not_turned_where_directions_matter(tiny_task):
    for augment in (True, False):
        config = config_of("transformer", tiny_task, SOURCE, augment=augment)
        assert config.training.augment == augment
    assert not config_of("set-2", tiny_task, SOURCE, augment=True).training.augment


def test_import_paths_make_names_of_files():
    names = ["own.models.Wild", "own.models_Wild", "own_models.Wild"]
    files = {Candidate(name, "trained", 1).file_name for name in names}
    assert len(files) == 3
    assert all(name.startswith("own_models_Wild-") for name in files)
    assert all(Candidate(name, "trained", 1).file_name == name for name in PRESETS)
