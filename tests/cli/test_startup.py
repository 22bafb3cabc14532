"""What the command line imports before it needs it."""

import functools
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tyro

from spacetime_en.cli import COMMANDS, GROUPS, find_command, main
from spacetime_en.data import Trajectories

SLOW = (
    *("torch", "torch._dynamo", "sympy", "lightning", "matplotlib", "numba", "optuna"),
    *("scipy.signal", "tyro"),
)


def imported(program):
    """Which of the slow packages a program has imported when it ends."""
    program += f"\nprint([name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(eval(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [[], ["data", "--help"], ["--version"]])
def test_an_overview_imports_nothing_slow(arguments):
    program = f"import sys\nsys.argv = ['spacetime', *{arguments}]\n"
    assert imported(program + "from spacetime_en.cli import main\nmain()") == set()


def test_commands_import_only_what_all_of_them_need():
    program = "import sys, spacetime_en.cli.commands\nassert 'torch' not in sys.modules\n"
    program += "import spacetime_en.cli.runs, spacetime_en.cli.training, spacetime_en.runs.training"
    program += ", spacetime_en.evaluation, spacetime_en.runs.prediction"
    assert imported(program) <= {"torch", "tyro"}


WITHOUT_INPUT = (
    ["data", "info", "nowhere"],
    ["evaluate", "nowhere"],
    ["export", "nowhere"],
    ["animate", "nowhere", "--out", "a.gif"],
    ["predict", "nowhere", "nowhere", "--out", "a.npz"],
    ["train", "set", "--data", "nowhere", "--out", "a"],
    ["reproduce", "nothing", "--out", "nowhere"],
)
# All in one process: what none of them imports, each does not.
RUN_WITHOUT_INPUT = f"""
import os, sys
from spacetime_en.cli import main

os.chdir(sys.argv[1])
for arguments in {WITHOUT_INPUT}:
    sys.argv = ["spacetime", *arguments]
    try:
        main()
    except SystemExit as stop:
        assert "error" in str(stop), (arguments, stop)
    else:
        raise AssertionError(arguments)
    found = {{name for name in {SLOW} if name in sys.modules}}
    assert found == {{"torch", "tyro"}}, (arguments, found)
"""


def test_a_command_looks_at_its_input_before_it_imports_what_comes_later(tmp_path):
    command = [sys.executable, "-c", RUN_WITHOUT_INPUT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_data_that_are_there_are_described_without_a_compiler():
    """Simulations and neighbour lists are compiled; these data need neither."""
    program = "import sys, spacetime_en.report.tables.task\n"
    program += "from spacetime_en.data import Trajectories, load_task"
    assert imported(program) == {"torch"}


def test_exporting_imports_the_compiler_when_it_traces():
    assert imported("import sys, spacetime_en.runs.export") == {"torch"}
    assert imported("import sys, spacetime_en.reproduce") == {"torch"}


def test_a_graph_needs_little_more_than_torch():
    assert imported("import sys, spacetime_en as st\nst.SpacetimeGraph") == {"torch"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_commands_say_of_themselves(name):
    place, summary = COMMANDS[name]
    module, _, attribute = place.partition(".")
    command = getattr(import_module(f"spacetime_en.cli.{module}"), attribute)
    assert inspect.getdoc(command).splitlines()[0] == summary


EXAMPLES = {name: example for group in GROUPS.values() for name, example in group.items()}


def test_every_command_is_in_one_group():
    assert sorted(EXAMPLES) == sorted(COMMANDS)
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_the_parser_takes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Trajectories.from_arrays(np.zeros((12, 20, 3, 2))).save("data/mine")
    words = EXAMPLES[name].partition(" >")[0].split()
    options = words[len(name.split()) :]
    command = find_command(name, options)
    if inspect.isfunction(command):  # which tyro calls; a command that is a class only gets ready
        command = functools.wraps(command)(lambda *args, **kwargs: None)
    assert words == [*name.split(), *options]
    tyro.cli(command, args=options)


def test_the_overview_lists_all_commands(monkeypatch, capsys):
    for arguments in ([], ["--help"], ["-h"]):
        monkeypatch.setattr(sys, "argv", ["spacetime", *arguments])
        main()
        said = capsys.readouterr().out
        assert all(f"  {name} " in said for name in COMMANDS)
        assert max(map(len, said.splitlines())) <= 80
    page = Path(__file__).parents[2] / "docs" / "command-line.md"
    assert f"```text\n{said}```" in page.read_text()
    monkeypatch.setattr(sys, "argv", ["spacetime", "data"])
    main()
    said = capsys.readouterr().out
    assert "data info" in said
    assert "train" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "error: command: there is no 'trian'; did you mean 'train'?"),
        (["data", "inf"], "error: command: there is no 'data inf'; did you mean 'data info'?"),
    ],
)
def test_an_unknown_command_gets_the_nearest(monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "argv", ["spacetime", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert str(stop.value) == message
