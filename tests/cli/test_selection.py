"""The preset and the task are found among the arguments before these are parsed."""

from pathlib import Path

import pytest
import tyro

from spacetime_en import InputError
from spacetime_en.cli.selection import (
    Selection,
    evaluation_of,
    task_field,
    task_in,
    value_of,
)
from spacetime_en.data.steps import parse_steps


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("--task charged", "charged"),
        ("--task=charged --lr 1", "charged"),
        ("set --task gravity --out x --task charged", "charged"),
        ("--task None", None),
        ("--task", None),
        ("--task --out x", None),
        ("--task.noise 0.1", None),
    ],
)
def test_the_value_of_an_option(arguments, value):
    assert value_of("--task", arguments.split()) == value


def test_a_run_of_ones_own_class_is_evaluated_with_trust():
    assert evaluation_of(Path("runs/x"), "egnn") == "spacetime evaluate runs/x"
    assert evaluation_of(Path("runs/x"), "own:Model") == "spacetime evaluate runs/x --trust"


def test_a_task_or_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert task_in([]) == {}
    assert task_in(["--task", "charged"]) == {"name": "charged"}
    assert task_in(["--data", "x"]) == {"data": str(tmp_path.resolve() / "x")}
    with pytest.raises(InputError, match="either a task or data"):
        task_in(["--task", "charged", "--data", "x"])
    (tmp_path / "loop").symlink_to("loop")
    assert task_in(["--data", "loop"]) == {"data": str(tmp_path / "loop")}


def test_a_file_is_checked_as_far_as_the_preset_and_the_task_are_known(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: {hidden: 4}\ntask: {name: charged, noise: 1e-3}\n")
    config = ["--config", str(path)]
    assert Selection.from_arguments(config).preset is None
    selection = Selection.from_arguments(["egnn", *config])
    assert (selection.preset, selection.model) == ("egnn", {"hidden": 4})
    assert selection.task_settings == {"noise": 1e-3}
    other = Selection.from_arguments(["egnn", *config, "--task", "gravity"])
    assert (other.task, other.task_settings) == ({"name": "gravity"}, {})
    with pytest.raises(InputError, match=r"c.yaml: setting: there is no 'model.hidden'"):
        Selection.from_arguments(["linear", *config])
    path.write_text("preset: egnn\n")
    with pytest.raises(InputError, match="is for the preset 'egnn', not for 'set'"):
        Selection.from_arguments(["set", *config])


@pytest.mark.parametrize("source", [{"name": "charged"}, {"data": "x"}])
@pytest.mark.parametrize("words", [["12"], ["1..12"], ["1,2,4"], ["1", "2", "4"]])
def test_a_path_of_targets_is_one_option(source, words):
    steps = {"12": (12,), "1..12": tuple(range(1, 13))}.get(words[0], (1, 2, 4))
    _, kind, default = task_field(source, {})
    parsed = tyro.cli(kind, default=default, args=["--target-steps", *words])
    assert parse_steps(parsed.target_steps) == steps


@pytest.mark.parametrize(
    ("words", "lr", "dropout"),
    [
        ("--task charged", 4.45e-5, 0.1),
        ("--task gravity", 1e-3, 0.0),
        ("--data x", 1e-3, 0.0),
        ("--task charged --settings ours", 1e-3, 0.0),
        ("--data x --settings=paper", 4.45e-5, 0.1),
        ("--data x --settings none", 1e-3, 0.0),  # which the parser refuses
    ],
)
def test_whose_settings_depends_on_the_task_and_can_be_chosen(words, lr, dropout):
    fields = {
        name: value for name, _, value in Selection.from_arguments(["set", *words.split()]).fields()
    }
    assert (fields["training"].lr, fields["model"].dropout) == (lr, dropout)


@pytest.mark.parametrize("choice", [[], ["--settings", "paper"], ["--settings", "ours"]])
def test_what_a_file_says_wins_over_both(tmp_path, choice):
    path = tmp_path / "c.yaml"
    path.write_text("preset: set\ntask: gravity\nmodel: {dropout: 0.2}\ntraining: {lr: 0.2}\n")
    selection = Selection.from_arguments(["--config", str(path), *choice])
    fields = {name: value for name, _, value in selection.fields()}
    assert (fields["training"].lr, fields["model"].dropout) == (0.2, 0.2)
    assert fields["training"].schedule == ("constant" if "paper" in choice else "cosine")
