"""The command ``spacetime``: parses the command line and calls the subpackages below.

The commands are listed here, so that ``spacetime --help`` imports none of them; each imports what
it needs when it runs. The guard is entered before that, so that errors and Ctrl-C end in one
sentence even while PyTorch is being imported.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from spacetime_en._util.errors import no_such
from spacetime_en.cli.guard import guarded

# By command words: the module and the name in it, and the line in the help.
COMMANDS = {
    "train": ("training.Train", "Train a model on a task."),
    "compare": ("comparing.Compare", "Find the best model for your data."),
    "search": ("training.Search", "Search for good settings with Optuna."),
    "evaluate": ("runs.Evaluate", "Measure a trained model's errors against trivial forecasts."),
    "predict": ("runs.Predict", "Forecast new data with a trained model."),
    "animate": (
        "runs.Animate",
        "Animate forecasts beside the truth, or draw them.",
    ),
    "export": ("runs.Export", "Export a trained model to ONNX or torch.export."),
    "simulate": ("commands.simulate", "Simulate trajectories into a data set."),
    "data info": ("data.DataInfo", "Describe a task or a data set."),
    "conservation": ("data.Conservation", "Find what the paths of a task or a data set conserve."),
    "data import": ("commands.data_import", "Import trajectories from a file into a data set."),
    "symmetries": (
        "symmetries.FindSymmetries",
        "Find out which symmetries your data have.",
    ),
    "models": ("commands.models", "List the presets with parameter counts and symmetries."),
    "demo": ("commands.demo", "Train four small models; print a table, draw plots."),
    "reproduce": ("commands.reproduce", "Reproduce the paper's tables, figures and report."),
    "bench": ("commands.bench", "Benchmark the models on this machine (in a clone only)."),
    "doctor": ("commands.doctor", "Show versions, devices, folders, and what extras would add."),
    "completion": ("completion.completion", "Print a script that completes commands with Tab."),
}
# The overview: the most common uses first, with an example of each command.
GROUPS = {
    "Try it": {
        "demo": "demo",
        "models": "models",
    },
    "Your data": {
        "data import": "data import tracks.csv --out data/mine",
        "data info": "data info data/mine --picture mine.png",
        "simulate": "simulate charged --num 3000 --out data/charged",
    },
    "Train and use": {
        "train": "train set-2 --data data/mine --max-time 5m --out runs/mine",
        "evaluate": "evaluate runs/mine",
        "predict": "predict runs/mine data/mine --out forecasts.csv",
        "animate": "animate runs/mine --out forecast.gif",
        "export": "export runs/mine --format onnx",
    },
    "Compare": {
        "compare": "compare --data data/mine --out compare/mine",
        "search": "search egnn --data data/mine --trials 30 --out runs/search",
        "reproduce": "reproduce baselines --scale quick",
        "bench": "bench training",
    },
    "Understand": {
        "symmetries": "symmetries --data data/mine",
        "conservation": "conservation data/mine",
    },
    "Set up": {
        "doctor": "doctor",
        "completion": "completion zsh > ~/.zfunc/_spacetime",
    },
}
HELP = ("-h", "--help")


def main() -> None:
    """Entry point of the console command."""
    arguments = sys.argv[1:]
    os.environ["MPLBACKEND"] = "agg"  # no command opens a window, whatever the user's setting
    with guarded(arguments):
        if arguments == ["--version"]:
            from importlib.metadata import version

            print(version("spacetime-en"))
        elif not arguments or arguments[0] in HELP:
            print(_overview())
        elif arguments[0] == "data" and (len(arguments) == 1 or arguments[1] in HELP):
            print(_overview("data"))
        else:
            _run(arguments)


def _overview(prefix: str = "") -> str:
    """All commands by group, or those whose names start with `prefix`, with an example each."""
    lines = [
        "usage: spacetime COMMAND [options]",
        "",
        "Equivariant forecasting of moving point clouds.",
    ]
    for group, examples in GROUPS.items():
        if names := [name for name in examples if name.startswith(prefix)]:
            lines += ["", f"{group}:"]
        for name in names:
            lines += [f"  {name:13}{COMMANDS[name][1]}", f"    $ spacetime {examples[name]}"]
    return "\n".join([*lines, "", "Options of a command: spacetime COMMAND --help"])


def _run(arguments: Sequence[str]) -> None:
    """Parse the arguments of the command named by the first word or two, and call it."""
    words = 2 if arguments[0] == "data" else 1
    name, options = " ".join(arguments[:words]), arguments[words:]
    if name not in COMMANDS:
        raise no_such("command", name, COMMANDS)
    import tyro

    if not set(HELP) & set(options):
        import torch

        torch.set_flush_denormal(True)  # numbers below 1e-38 slow CPUs to a crawl, and mean nothing
    parsed = tyro.cli(find_command(name, options), prog=f"spacetime {name}", args=options)
    if parsed is not None:  # a command that is a class; functions have been called by tyro
        parsed()


def find_command(name: str, options: Sequence[str] = ()) -> Callable[..., Any]:
    """The function or class behind a command; its options may depend on the other arguments."""
    module, _, attribute = COMMANDS[name][0].partition(".")
    command = getattr(import_module(f"{__name__}.{module}"), attribute)
    if hasattr(command, "with_options_for"):  # options of the preset and the task
        command = command.with_options_for(options)
    return cast(Callable[..., Any], command)
