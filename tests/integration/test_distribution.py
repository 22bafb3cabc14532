"""What users install: both distributions, and the wheel in a fresh environment."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "spacetime_en"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAME = f"spacetime_en-{VERSION}"
# All that is not generated belongs to the package.
FILES = {
    path.relative_to(PACKAGE.parent).as_posix()
    for path in PACKAGE.rglob("*")
    if path.is_file() and path.suffix not in (".pyc", ".nbc", ".nbi")
}
SMOKE = """
import spacetime_en as st
from importlib.resources import files
from spacetime_en.report import plot_forecasts

model = st.Forecaster.from_pretrained("pretrained:charged")
task = st.load_task("charged", counts=(2, 2, 2), target_steps=1)
graph, target = task.test[:]
assert ((model(graph).x - target.x) ** 2).mean() < 1e-3
st.evaluate(model, task)
for package, name in (("report", "space.js"), ("compare", "report.html")):
    assert (files(f"spacetime_en.{package}") / "assets" / name).read_text()
print(st.__version__, st.__file__)
"""


def done(*command, **options):
    """Run a command without the package of this repository, and return what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "COLUMNS": "80"}, **options
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both distributions; the wheel is built from the source distribution."""
    source = tmp_path_factory.mktemp("source")
    generated = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("src", "tests", "results"):
        shutil.copytree(ROOT / folder, source / folder, ignore=generated)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, source)
    out = tmp_path_factory.mktemp("built")
    command = ("-m", "build", "--no-isolation", "--outdir", str(out), str(source))
    done(sys.executable, *command, cwd=out)
    return out


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        about = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    beside = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    assert beside == FILES
    assert {"spacetime_en/py.typed", "spacetime_en/weights/charged/config.yaml"} <= names
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert f"\nVersion: {VERSION}\n" in about


def test_the_source_distribution_holds_what_a_wheel_is_built_from(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert {f"src/{name}" for name in FILES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= names
    assert not [name for name in names if name.startswith(("tests/", "results/", "docs/"))]


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The programs of an environment with the wheel, which borrows its dependencies from ours."""
    folder = tmp_path_factory.mktemp("environment")
    done(sys.executable, "-m", "venv", "--without-pip", str(folder))
    (packages,) = folder.glob("lib/python*/site-packages")
    # (Editable packages are not among them: theirs are files that only a site folder reads.)
    ours = [place for place in sys.path if Path(place).name == packages.name]
    (packages / "borrowed.pth").write_text("\n".join(ours))
    wheel = str(built / f"{NAME}-py3-none-any.whl")
    options = ("--quiet", "--no-deps", "--no-index", "--ignore-installed", "--no-compile")
    python = str(folder / "bin" / "python")
    done(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    return folder / "bin"


def test_the_library_works_where_the_wheel_is_installed(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
    version, place = done(installed / "python", "-c", SMOKE, cwd=tmp_path).split()
    assert version == VERSION
    assert Path(place).is_relative_to(installed.parent.resolve())


def test_the_command_works_where_the_wheel_is_installed(installed, tmp_path):
    spacetime = installed / "spacetime"
    assert done(spacetime, "--version", cwd=tmp_path).strip() == VERSION
    presets = {row["preset"] for row in json.loads(done(spacetime, "models", "--json"))}
    assert {"set", "set-2", "set-flow"} <= presets
    findings = json.loads(done(spacetime, "doctor", "--json"))
    assert findings["versions"]["spacetime-en"] == VERSION
    assert findings["problems"] == []
