"""Public names: each package gives what its stub says, and imports nothing before it is used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(import_module("spacetime_en").__file__).parent
PACKAGES = [
    ".".join(("spacetime_en", *stub.parent.relative_to(ROOT).parts))
    for stub in sorted(ROOT.rglob("__init__.pyi"))
]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_gives_what_its_stub_says(name):
    package = import_module(name)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    expected = {
        alias.name: getattr(import_module(f"{name}.{node.module}"), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(package.__all__) == sorted(expected)
    assert all(getattr(package, key) is value for key, value in expected.items())


@pytest.mark.parametrize("name", PACKAGES)
def test_names_that_are_not_there(name):
    with pytest.raises(AttributeError, match="nothing"):
        import_module(name).nothing  # noqa: B018


def test_names_are_imported_when_they_are_used():
    program = f"import sys, {', '.join(PACKAGES)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
