"""Public names: each package exports what its stub says, and imports nothing before use."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
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
def test_the_reference_describes_every_public_name(name):
    docs = Path(__file__).parent.parent / "docs"
    text = "\n".join(page.read_text() for page in [docs / "api.md", *docs.glob("api/*.md")])
    whole = set(re.findall(r"automodule:: (\S+)\n +:members:\n", text))
    stub = ast.parse(Path(import_module(name).__file__).with_suffix(".pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and f"{name}.{node.module}" not in whole:
            assert all(re.search(rf"\b{alias.name}\b", text) for alias in node.names)


@pytest.mark.parametrize("name", PACKAGES)
def test_names_that_are_not_there(name):
    with pytest.raises(AttributeError, match="nothing"):
        import_module(name).nothing  # noqa: B018


# Defined more than once, on purpose:
SHARED = {
    "read": "each module of data/readers/foreign has one, which a process of its own calls",
    "reproduce": "a command has the name of the function that it calls",
    "simulate": "a command has the name of the function that it calls",
}


def test_each_name_stands_for_one_thing():
    modules = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for name in _defined(ast.parse(path.read_text()).body):
            if len(name) > 1 and not name.startswith("_"):  # (T of types and shapes is free)
                modules[name].append(str(path.relative_to(ROOT)))
    repeated = {name: places for name, places in modules.items() if len(places) > 1}
    assert set(repeated) == set(SHARED), repeated


def _defined(body):
    """The names that the statements of a module define, each once; imports define none."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def test_names_are_imported_when_they_are_used():
    program = f"import sys, {', '.join(PACKAGES)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_any_model_is_loaded_by_the_base_class_alone():
    """The first lines of a program: classes of models are found without having been imported."""
    program = (
        "from spacetime_en import Forecaster; Forecaster.from_pretrained('pretrained:charged')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
