"""Jobs as Ray tasks: in order, and a failure stops no other (a stand-in for the cluster)."""

import sys
from types import SimpleNamespace

import pytest

from benchmarks.symmetry_power import world
from spacetime_en import InputError
from spacetime_en.compare.comparison import compare
from spacetime_en.compare.results import read_result
from spacetime_en.compare.workers import carry_out_all
from tests.compare.inline import TASK
from tests.compare.test_workers import Toy


class RayError(Exception):
    pass


class Cluster:
    """The part of Ray that is used, in this process; the newest task ends first."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, lost=()):
        self.lost, self.asked, self.running = lost, [], False

    def is_initialized(self):
        return self.running

    def init(self, **how):
        self.running = True

    def shutdown(self):
        self.running = False

    def cluster_resources(self):
        return {"CPU": 2.0}

    def remote(self, **needed):
        self.needed = needed
        return lambda task: SimpleNamespace(remote=lambda *given: (task, given))

    def wait(self, tasks):
        return [tasks[-1]], tasks[:-1]

    def get(self, task):
        function, given = task
        self.asked.append(given[0].name)
        if given[0].name in self.lost:
            raise RayError("a traceback\nThe worker died")
        return function(*given)


@pytest.fixture(autouse=True)
def preloaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacetime_en.compare.preload", SimpleNamespace(IMPORTER=0))


def test_each_job_is_a_task_after_those_that_it_needs(tmp_path, monkeypatch, capsys):
    cluster = Cluster(lost=("b",))
    monkeypatch.setitem(sys.modules, "ray", cluster)
    jobs = [Toy("a"), Toy("b"), Toy("c", fails=True), Toy("d", ("a", "b"))]
    outcome = carry_out_all(jobs, tmp_path, "toy", ray=True)
    assert cluster.asked == ["c", "b", "a", "d"]
    assert cluster.needed == {"num_cpus": 1, "num_gpus": 0, "max_retries": 0}
    assert outcome.failed == {
        "b": "its Ray task died (The worker died); what is done is kept.",
        "c": "ZeroDivisionError: by nothing",
    }
    assert outcome.seconds > 0
    assert read_result(tmp_path, "d")["there"] == ["a"]
    assert "4 of 4  d: fine" in capsys.readouterr().err
    assert not cluster.running  # what was started here is stopped here


def test_without_ray_the_extra_is_named_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs the package ray: pip install 'spacetime-en\[ray"):
        compare(TASK, tmp_path / "x", ray=True)
    assert not (tmp_path / "x").exists()


def test_data_are_found_from_wherever_tasks_run(tmp_path, monkeypatch):
    class Elsewhere(Cluster):
        def get(self, task):
            monkeypatch.chdir("/")
            try:
                return super().get(task)
            finally:
                monkeypatch.chdir(tmp_path)

    monkeypatch.setitem(sys.modules, "ray", Elsewhere())
    monkeypatch.chdir(tmp_path)
    world(runs=12).train.trajectories.save("data")
    task = {"data": "data", "length": 4, "stride": 1, "target_steps": 1}
    made = compare(task, "x", ["straight-line"], ray=True, symmetries=False)
    assert made.leaderboard.chosen == "straight-line"


@pytest.mark.parametrize("other", [{"workers": 1}, {"storage": "postgresql://host/db"}])
def test_ray_divides_the_work_itself(other, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Cluster())
    with pytest.raises(InputError, match=f"{next(iter(other))}: Ray divides the work itself"):
        compare(TASK, tmp_path / "x", ray=True, **other)
    assert not (tmp_path / "x").exists()
