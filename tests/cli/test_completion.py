"""Completion in a shell, as the shell sees it."""

import shutil
import subprocess
import sys

import pytest

from spacetime_en.cli import COMMANDS, main

# What the function of the script offers for the last word of a line.
ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tyro_spacetime
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    return tmp_path_factory.mktemp("completion") / "spacetime"


@pytest.mark.parametrize("shell", ["zsh", "bash"])
def test_a_script_names_all_commands(monkeypatch, capsys, script, shell):
    monkeypatch.setattr(sys, "argv", ["spacetime", "completion", shell])
    main()
    text = capsys.readouterr().out
    assert text.startswith("#compdef spacetime\n") == (shell == "zsh")
    assert all(f"'{word}'" in text for name in COMMANDS for word in name.split())
    script.write_text(text)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ((), {"train", "data", "doctor"}),
        (("tr",), {"train"}),
        (("data", "in"), {"info"}),
        (("data", "import", "--fr"), {"--frame-step"}),
        (("evaluate", "--split", ""), {"train", "val", "test"}),
    ],
)
def test_bash_completes(script, words, offered):
    command = ["bash", "-c", ASK, "ask", str(script), "spacetime", *(words or ("",))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    found = set(done.stdout.splitlines())
    assert found >= offered if not words else found == offered
