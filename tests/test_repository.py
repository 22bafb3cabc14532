"""Everything around the code: the workflow, the forms, the hooks and the version agree."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
JOBS = WORKFLOW["jobs"]


def steps(name):
    return [step["run"] for step in JOBS[name]["steps"] if "run" in step]


def pythons(name):
    return JOBS[name]["strategy"]["matrix"]["python"]


def test_the_workflow_runs_what_a_contributor_runs():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    used = {
        target
        for name in JOBS
        for step in steps(name)
        for target in re.findall(r"^make ([\w-]+)$", step)
    }
    assert {"lint", "test", "docs", "dist", "test-all", "claims"} == used
    assert used <= targets


@pytest.mark.parametrize("name", ["test", "wheel"])
def test_the_workflow_tests_every_python_that_is_promised(name):
    promised = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
    ]
    assert pythons(name) == promised
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert all(python in allowed for python in promised)
    older = f"3.{int(promised[0].partition('.')[2]) - 1}"
    assert older not in allowed
    assert JOBS[name]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]


def test_hooks_are_programs_of_the_environment_and_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = config["repos"]
    assert local["repo"] == "local"
    wanted = {re.split("[<>=]", one)[0] for one in PROJECT["optional-dependencies"]["dev"]}
    packages = {"lint-imports": "import-linter"}
    for hook in local["hooks"]:
        program = Path(hook["entry"].split()[0])
        assert program.parent == Path(".venv/bin")
        assert packages.get(program.name, program.name) in wanted
        assert hook["language"] == "system"


@pytest.mark.parametrize("form", ["bug", "number", "idea"])
def test_forms_ask_for_something(form):
    content = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text())
    assert {"name", "description", "body"} <= set(content)
    assert any(field.get("validations", {}).get("required") for field in content["body"])


def test_the_version_and_its_date_are_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert citation["version"] == PROJECT["version"]
    assert heading[1] == f"{PROJECT['version']} ({citation['date-released']})"
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("Spacetime E(n)-Transformer")
