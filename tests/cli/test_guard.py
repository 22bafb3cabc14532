"""Every error in a command ends in one sentence and an exit status."""

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from spacetime_en._util.errors import InputError, Interrupted
from spacetime_en._util.signals import STOP_SIGNALS
from spacetime_en.cli.guard import guarded


def said(error, *arguments):
    """What the user sees of an error in a command with these arguments."""
    with pytest.raises(SystemExit) as stop, guarded(arguments):
        raise error
    assert stop.value.code not in (0, None)
    return str(stop.value)


def caught(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def test_bad_input_is_told_as_it_is():
    assert said(InputError("lr: expected more.")) == "error: lr: expected more."


@pytest.mark.parametrize(
    "call",
    [
        lambda: np.empty(1 << 50),
        lambda: torch.empty(1 << 50),
        lambda: [0] * (1 << 60),
    ],
    ids=["numpy", "torch", "python"],
)
def test_memory_names_the_number_that_was_typed(call):
    found = said(caught(call), "simulate", "charged", "--out", "x", "--nodes", "9999", "--num=7")
    assert found.startswith("error: memory: there is not enough (")
    assert found.endswith("is --nodes 9999 too large?")


@pytest.mark.parametrize(
    "call",
    [
        lambda: np.array([10**30], dtype=np.int64),
        lambda: torch.tensor(10**30),
        lambda: torch.empty(10**30),
    ],
    ids=["numpy", "tensor", "size"],
)
def test_integers_beyond_64_bits_name_the_number_that_was_typed(call):
    found = said(caught(call), "train", "set", "--seed", str(10**30))
    assert "too large to compute with" in found
    assert found.endswith(f"is --seed {10**30} too large?")


def test_an_error_of_the_system_names_the_file_and_the_option(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "runs" / "x" / "best"))
    assert said(full, "train", "set", "--out", str(tmp_path / "runs")) == (
        f"error: --out {tmp_path}/runs: {tmp_path}/runs/x/best: No space left on device."
    )
    full.filename = str(tmp_path / "p.npz")
    found = said(full, "predict", "run", f"--out={tmp_path}/p.npz")
    assert found == f"error: --out: {tmp_path}/p.npz: No space left on device."
    full.filename = None
    assert said(full, "predict", "--out", "y") == "error: --out y: No space left on device."


def test_what_nobody_expected_is_called_a_bug(monkeypatch):
    found = said(KeyError("x"))
    assert found.startswith("error: this is a bug, please report it: KeyError: 'x' (test_guard.py,")
    assert "SPACETIME_EN_DEBUG=1" in found
    monkeypatch.setenv("SPACETIME_EN_DEBUG", "1")
    with pytest.raises(KeyError), guarded([]):
        raise KeyError("x")


def test_one_line_whatever_the_names():
    found = said(InputError("a\nb\x1b[2J\udcff: is no run."))
    assert found == "error: a\\nb\\x1b[2J\\udcff: is no run."
    pages = RuntimeError("no such kernel\nframe #0: ...\nframe #1: ...")
    assert "frame" not in said(pages)


def test_an_argument_that_is_no_text():
    with pytest.raises(SystemExit) as stop, guarded(["evaluate", "a\udcff"]):
        pytest.fail("it began")
    assert "a\\udcff: the argument is not text" in str(stop.value)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_every_signal_that_asks_to_stop_gives_130(number, capsys):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stop, guarded([]):
        os.kill(os.getpid(), number)
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped\n"
    assert signal.getsignal(number) is before


def test_an_interruption_may_say_how_to_go_on(capsys):
    with pytest.raises(SystemExit) as stop, guarded([]):
        raise Interrupted("stopped; go on with: x")
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped; go on with: x\n"


SLOW_IMPORT = """
import builtins, os, signal, sys
class Slow:  # the first import of PyTorch gets the signal
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.{name})
            sys.exit("went on")
sys.meta_path.insert(0, Slow())
sys.argv = ["spacetime", "models"]
from spacetime_en.cli import main
main()
"""


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_stopped_while_it_is_still_being_imported(number):
    command = [sys.executable, "-c", SLOW_IMPORT.replace("{name}", number.name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_a_terminal_that_knows_no_accents():
    program = "from spacetime_en.cli.guard import guarded\nwith guarded([]): print('é×')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "\\xe9\\xd7\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_is_full():
    program = "from spacetime_en.cli.guard import guarded\nwith guarded([]): print('x')"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device.\n"


def test_closed_streams():
    program = """
import os, sys
from spacetime_en.cli.guard import guarded
with guarded([]):
    print('x', sys.stdout.isatty())
    assert os.open(os.devnull, os.O_RDONLY) > 2  # what is printed never goes to a file of ours
    raise ValueError('y')
"""
    command = 'exec "$0" -c "$1" >&- 2>&-'
    assert subprocess.run(["sh", "-c", command, sys.executable, program]).returncode == 1


def test_the_package_names_all_that_it_gives():
    import spacetime_en

    assert all(getattr(spacetime_en, name) is not None for name in spacetime_en.__all__)
    assert callable(spacetime_en.collate)
