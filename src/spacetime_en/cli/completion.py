"""``spacetime completion``: a script with which a shell completes commands and options."""

import contextlib
import io
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

from spacetime_en.cli import COMMANDS, find_command


def completion(shell: Positional[Literal["bash", "zsh"]]) -> None:
    """Print a script that completes commands with Tab.

    For bash:  spacetime completion bash > ~/.local/share/bash-completion/completions/spacetime

    For zsh:   spacetime completion zsh > ~/.zfunc/_spacetime   (a folder of $fpath)

    Then start a new shell. Options that a preset or a task adds, such as --model.hidden, are not
    among those that are completed.

    Args:
        shell: bash or zsh.
    """
    print(_script(shell), end="")


def _script(shell: str) -> str:
    """The script that tyro generates for a parser with all commands as subcommands."""
    nested: Any = Union[tuple(_commands("data "))]  # noqa: UP007 (their number is known at run time)

    def data(command: nested) -> None:
        """Import and describe data sets."""

    group = Annotated[Any, subcommand("data", constructor=data, description="Data sets.")]
    everything: Any = Union[(*_commands(""), group)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.cli(
            everything,
            prog="spacetime",
            args=["--tyro-print-completion", shell],
            config=(OmitSubcommandPrefixes,),
        )
    # A two-line description would be offered as two completions.
    return "".join(
        line.replace(r"\n", " ") if line.startswith("COMPLETION_SPEC") else line
        for line in printed.getvalue().splitlines(keepends=True)
    )


def _commands(prefix: str) -> Iterator[Any]:
    """The one-word commands, or those that begin with `prefix`, as types for tyro."""
    for name, (_, summary) in COMMANDS.items():
        if name.startswith(prefix) and " " not in (word := name.removeprefix(prefix)):
            command = find_command(name)
            yield Annotated[Any, subcommand(word, constructor=command, description=summary)]
