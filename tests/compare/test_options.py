"""Options chosen by the symmetries of the data, and what is said about them."""

import json
import re
from types import SimpleNamespace

import pytest

from benchmarks.symmetry_power import world
from spacetime_en import InputError
from spacetime_en.compare import options
from spacetime_en.compare.candidates import Candidate
from spacetime_en.compare.options import STUDY_FILE, DataOptions, options_for
from spacetime_en.geometry import Symmetries
from spacetime_en.runs.run import Run
from tests.compare.inline import TASK, compare_here

UP = (0.0, 0.0, 1.0)
BLIND = Candidate("set-2", "trained", 9)
ABLE = Candidate("mlp", "trained", 9, Symmetries(False, False, True))
LINE = Candidate("straight-line", "trivial", 0)
ALL = (LINE, BLIND, ABLE)
BROKEN = {"rotation": "broken"}


@pytest.mark.parametrize(
    ("asked", "candidates", "up", "sentence"),
    [
        (DataOptions(), ALL, None, "Nothing in the data speaks against equivariant models."),
        (DataOptions(stated=UP), ALL, None, r"The data call \(0, 0, 1\) up: set-2 reads it."),
        (DataOptions(stated=UP), (LINE, ABLE), None, "up: none of the models compared reads it"),
        (DataOptions(BROKEN, found=UP), ALL, UP, r"about \(0, 0, 1\) only, .* up: set-2 reads it."),
        (DataOptions(BROKEN, found=UP), ALL, None, r"Rotations hold about \(0, 0, 1\) only.$"),
        (
            DataOptions(BROKEN, found=(0, 1)),
            ALL,
            (0, 1),
            r"Mirrors hold that contain \(0, 1\) only",
        ),
        (
            DataOptions({"reflection": "broken"}, found=(1,)),
            ALL,
            (1,),
            r"ends, and \(1\) points to",
        ),
        (DataOptions(BROKEN), ALL, None, "no axis .*: mlp can know it, set-2 cannot."),
        (
            DataOptions(BROKEN),
            (LINE, BLIND),
            None,
            "no model compared can .* mlp or lstm, too",
        ),
        (DataOptions({"translation": "broken"}), (ABLE,), None, "where .* all models compared can"),
        (DataOptions({"permutation": "broken"}), ALL, None, "Nodes differ: no model compared can"),
        (
            DataOptions({"rotation": "untested"}, {"rotation": "all windows lie in one plane"}),
            ALL,
            None,
            "Rotations were not tested: all windows lie in one plane.",
        ),
        (DataOptions({"permutation": "unclear"}), ALL, None, "Whether permutation .* is unclear"),
        (DataOptions(impossible="too few."), ALL, None, "not known: too few."),
    ],
)
def test_what_is_said(asked, candidates, up, sentence):
    (said,) = asked.said(candidates, up)
    assert re.search(sentence, said)


def test_only_data_that_have_no_up_are_given_one():
    assert DataOptions(found=UP).up_for({"data": "here"}) == UP
    assert DataOptions(found=UP).up_for({"name": "gravity"}) is None
    assert DataOptions(found=UP, stated=UP).up_for({"data": "here"}) is None


def test_windows_are_turned_where_all_directions_are_alike_or_up_is_known():
    assert DataOptions().may_turn(None)
    assert DataOptions(BROKEN, found=UP).may_turn(UP)
    assert DataOptions(BROKEN, found=UP, stated=UP).may_turn(None)
    assert not DataOptions(BROKEN, found=UP).may_turn(None)
    assert not DataOptions(BROKEN, stated=UP).may_turn(None)
    ends = DataOptions({"reflection": "broken", "rotation": "untested"}, found=(1.0,))
    assert ends.may_turn((1.0,))
    assert not ends.may_turn(None)


def test_a_study_is_made_once_and_does_not_look_at_the_test(tmp_path, monkeypatch):
    task = world(runs=60, seed=1)
    blind = SimpleNamespace(train=task.train, val=task.val, label="blind")
    first = options_for(tmp_path, blind)
    assert set(first.verdicts) == {"translation", "rotation", "reflection", "permutation"}
    monkeypatch.setattr(options, "find_symmetries", None)
    assert options_for(tmp_path, blind) == first
    (tmp_path / STUDY_FILE).write_text('{"symmetries": {"rotation": {}}}')
    with pytest.raises(InputError, match=f"{STUDY_FILE}: symmetries"):
        options_for(tmp_path, blind)


def test_a_comparison_of_few_windows_goes_on_without(compared):
    text = json.loads((compared.folder / "leaderboard.json").read_text())
    (said,) = text["symmetries"]
    assert said.startswith("Symmetries of the data are not known: windows: 52 windows")
    assert said in (compared.folder / "leaderboard.md").read_text()


def test_without_asking(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("spacetime_en.compare.comparison.options_for", None)
    told = []
    made = compare_here(
        tmp_path / "x", cache, TASK, presets=("linear",), symmetries=False, notify=told.append
    )
    assert made.leaderboard.symmetries == ()
    assert told == []
    assert not (made.folder / STUDY_FILE).exists()


def test_an_axis_that_is_found_becomes_the_up_of_all_models(cache, tmp_path, monkeypatch):
    """The study itself is in tests/symmetries; a slow test below finds the axis."""
    world(runs=40, dims=3, field=0.5).train.trajectories.save(tmp_path / "data")
    found = DataOptions(BROKEN, {"rotation": ""}, found=UP)
    monkeypatch.setattr("spacetime_en.compare.comparison.options_for", lambda *_: found)
    told = []
    task = {"data": str(tmp_path / "data"), "length": 4, "stride": 1, "target_steps": 1}
    how = {"presets": ("egnn", "linear"), "budget": "30 steps", "seeds": 1, "notify": told.append}
    made = compare_here(tmp_path / "x", cache, task, **how)
    assert told == ["Rotations hold about (0, 0, 1) only, which models get as up: egnn reads it."]
    assert made.leaderboard.symmetries == tuple(told)
    run = Run.open(next((made.folder / "runs").glob("egnn*")))
    assert run.config.model["up"] is True
    assert tuple(run.config.task["up"]) == UP


@pytest.mark.slow
def test_the_axis_of_a_field_is_found_and_used(cache, tmp_path):
    world(runs=250, seed=5, dims=3, field=0.5).train.trajectories.save(tmp_path / "data")
    task = {"data": str(tmp_path / "data"), "length": 4, "stride": 1, "target_steps": 1}
    how = {"presets": ("egnn", "linear"), "budget": "30 steps", "seeds": 1}
    made = compare_here(tmp_path / "x", cache, task, **how)
    assert "Rotations hold about (0, 0, 1) only" in made.leaderboard.symmetries[0]
    assert json.loads((made.folder / STUDY_FILE).read_text())["axis"] == [0, 0, 1]
