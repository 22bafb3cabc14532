"""The example of docs/scaling.md."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_search_whose_workers_are_ray_tasks(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
    code = re.search(r"```\{code-block\} python\n(.*?)```", PAGE.read_text(), re.S).group(1)
    code = code.replace("task: gravity", "task: {name: gravity, counts: [40, 10, 10]}")
    code = code.replace('remote("search")', f'remote("{tmp_path / "search"}")')
    names = {}
    try:
        exec(compile(code, str(PAGE), "exec"), names)
    finally:
        ray.shutdown()
    assert all(1e-4 < lr < 1e-1 for lr in names["rates"])
    assert (tmp_path / "search" / "best.yaml").is_file()
