"""The command ``spacetime``. Light, so that what comes first is the guard, also around imports."""

import sys

from spacetime_en.cli.guard import guarded


def main() -> None:
    """Entry point of the console command."""
    arguments = sys.argv[1:]
    with guarded(arguments):
        if arguments == ["--version"]:
            from importlib.metadata import version

            print(version("spacetime-en"))
        else:
            from spacetime_en.cli.commands import run

            run(arguments)
