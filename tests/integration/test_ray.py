"""The example of docs/scaling.md, and a comparison on a cluster of this machine."""

import re
from pathlib import Path

import pytest

from spacetime_en.compare.comparison import compare
from tests.compare.inline import PRESETS, TASK

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_comparison_on_ray_is_the_same_as_here(tmp_path, cache, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))
    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False)
    try:
        there = compare(
            TASK, tmp_path / "ray", PRESETS, budget="30 steps", seeds=2, ray=True
        ).leaderboard
    finally:
        ray.shutdown()
    here = compare(TASK, tmp_path / "here", PRESETS, budget="30 steps", seeds=2).leaderboard
    assert there.chosen == here.chosen
    assert [row.preset for row in there.rows] == [row.preset for row in here.rows]
