"""Names in files: only modules already imported, or with trust; only folders named before."""

import os
import sys

import pytest

from spacetime_en import InputError
from spacetime_en._util.trust import named_object, remember, was_named


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working directory that leaves a file behind when it is run."""
    (tmp_path / "stranger_module.py").write_text("open('ran', 'w').close()\nThing = 7\n")
    monkeypatch.chdir(tmp_path)
    yield "stranger_module"
    sys.modules.pop("stranger_module", None)


def test_without_trust_nothing_is_imported(module, tmp_path):
    with pytest.raises(InputError, match="runs its code; add --trust"):
        named_object(f"{module}.Thing", trust=False)
    assert not (tmp_path / "ran").exists()
    assert named_object("spacetime_en.graph.Forecast", trust=False).__name__ == "Forecast"


def test_with_trust_the_working_directory_is_searched_and_then_forgotten(module):
    assert named_object(f"{module}:Thing", trust=True) == 7
    assert os.getcwd() not in sys.path


def test_what_cannot_be_imported_is_one_sentence(module):
    with pytest.raises(InputError, match=r"no.such: cannot be imported \(ModuleNotFoundError"):
        named_object("no.such")


def test_a_folder_is_remembered_by_its_real_path(tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    assert not was_named(folder)
    remember(folder)
    (tmp_path / "link").symlink_to(folder)
    assert was_named(tmp_path / "link")
    assert not was_named(tmp_path)
