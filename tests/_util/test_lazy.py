"""Public names: what type checkers see is what a package gives, and nothing is imported early."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = ["spacetime_en", "spacetime_en.data", "spacetime_en.runs", "spacetime_en.training"]


@pytest.mark.parametrize("name", PACKAGES)
def test_names_are_those_that_type_checkers_see(name):
    package = import_module(name)
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: getattr(import_module(node.module), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert package.__all__ == sorted(seen)
    assert all(getattr(package, name) is value for name, value in seen.items())
    assert {*package.__all__} <= {*dir(package)}


@pytest.mark.parametrize("name", PACKAGES)
def test_names_that_are_not_there(name):
    with pytest.raises(AttributeError, match=f"'{name}' has no attribute 'nothing'"):
        import_module(name).nothing  # noqa: B018


def test_names_are_imported_when_they_are_used():
    program = f"import sys, {', '.join(PACKAGES)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
