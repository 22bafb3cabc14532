"""Subpackages import only downwards, and ``make lint`` fails if one does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(folder):
    """The status of import-linter in a folder with src and pyproject.toml, and what it says."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path):
    """The package as it is, to be spoiled."""
    code = shutil.ignore_patterns("__pycache__", "weights", "assets")
    shutil.copytree(ROOT / "src" / "spacetime_en", tmp_path / "src" / "spacetime_en", ignore=code)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_no_room_imports_upwards():
    status, said = lint(ROOT)
    assert status == 0, said


UPWARDS = {
    "at the top": ("nn/state.py", "from spacetime_en.data.windows import Windows"),
    "for types": (
        "data/windows.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from spacetime_en.nn.forecaster import Forecaster",
    ),
    "in a function": (
        "training/batches.py",
        "def late():\n    from spacetime_en.runs.config import Config",
    ),
    "of utilities": ("_util/files.py", "import spacetime_en.graph"),
    "by the package itself": ("data/graphs.py", "from spacetime_en import Forecaster"),
    "inside of a room": ("nn/layers/egcl.py", "from spacetime_en.nn.models.set import SET"),
}


@pytest.mark.parametrize("how", UPWARDS)
def test_an_upward_import_fails(copy, how):
    name, line = UPWARDS[how]
    path = copy / "src" / "spacetime_en" / name
    path.write_text(f"{path.read_text()}\n\n{line}\n")
    status, said = lint(copy)
    assert status == 1
    assert "spacetime_en." + name.removesuffix(".py").replace("/", ".") in said


def test_a_module_without_a_room_fails(copy):
    (copy / "src" / "spacetime_en" / "misc.py").write_text("")
    status, said = lint(copy)
    assert status == 1
    assert "misc" in said
