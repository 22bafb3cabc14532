"""Many jobs in several processes: in order, checks first, and finished work is kept."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tqdm import tqdm

from spacetime_en import InputError
from spacetime_en.compare import workers
from spacetime_en.compare.claims import open_claims
from spacetime_en.compare.display import JobDisplay
from spacetime_en.compare.job import Job
from spacetime_en.compare.results import read_result, write_result
from spacetime_en.compare.workers import Outcome, carry_out_all


@dataclass(frozen=True)
class Toy(Job):
    """Notes what existed when it ran; fails on demand."""

    name: str = ""
    needs: tuple[str, ...] = ()
    fails: bool = False
    dies: bool = False

    def result(self, folder):
        return read_result(folder, self.name)

    def carry_out(self, folder, tell):
        tell(0.5, "half")
        if self.fails:
            raise ZeroDivisionError("by nothing\nand then a page of details")
        if self.dies:
            os._exit(3)
        there = sorted(path.stem for path in (folder / "experiments").glob("*.json"))
        imported = sys.modules["spacetime_en.compare.preload"].IMPORTER
        result = {
            "there": there,
            "pid": os.getpid(),
            "importer": imported,
            "word": os.environ.get("SPACETIME_EN_WORD"),
            "lock": type(tqdm.get_lock()).__name__,
        }
        write_result(folder, self.name, result)
        return result

    def summary(self, result):
        return "fine"


class Titled(Toy):
    """Has a file's name that is not for users."""

    @property
    def label(self):
        return f"own.{self.name}"


@pytest.fixture
def no_process(monkeypatch):
    monkeypatch.delattr(workers._Worker, "start")


def test_each_job_comes_after_those_that_it_needs_and_a_failure_stops_nobody(tmp_path, capsys):
    jobs = [
        Toy("c", ("a", "b")),  # (first in the list, and last to run)
        Toy("a"),
        Toy("b", ("a",), fails=True),
        Toy("d"),
    ]
    failed = carry_out_all(jobs, tmp_path, "toy", 2).failed
    assert failed == {"b": "ZeroDivisionError: by nothing"}
    assert "a" in read_result(tmp_path, "c")["there"]
    said = capsys.readouterr().err
    assert said.index("b: ZeroDivisionError") < said.index("c: fine")
    assert "4 of 4" in said
    before = read_result(tmp_path, "a")
    again = carry_out_all([*jobs[:2], Toy("b", ("a",)), jobs[3]], tmp_path, "toy", 2)
    assert again.failed == {}
    assert read_result(tmp_path, "a") == before
    assert read_result(tmp_path, "b")["pid"] != os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_what_workers_import_is_imported_once_and_counted_once(tmp_path):
    outcome = carry_out_all(
        [Toy("a"), Toy("b", ("a",), dies=True), Toy("c", ("b",))], tmp_path, "toy", 1
    )
    made = [read_result(tmp_path, name) for name in ("a", "c")]
    assert made[0]["pid"] != made[1]["pid"]
    assert made[0]["importer"] == made[1]["importer"] not in (made[0]["pid"], os.getpid())
    assert made[0]["lock"] == "RLock"  # no semaphore, which would outlive the worker
    assert outcome.seconds > 0


def test_workers_have_the_environment_of_this_moment(tmp_path, monkeypatch):
    for word in ("one", "other"):
        monkeypatch.setenv("SPACETIME_EN_WORD", word)
        carry_out_all([Toy(word)], tmp_path, "toy", 1)
        assert read_result(tmp_path, word)["word"] == word


def test_each_worker_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = [workers._environment_of(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)]
    assert seen == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert workers._environment_of(1)["CUDA_VISIBLE_DEVICES"] == "5"
    assert workers._start_method() == "spawn"


def test_a_process_that_dies_takes_its_own_job_only(tmp_path):
    jobs = [Toy("a", dies=True), Toy("b", ("a",))]
    failed = carry_out_all(jobs, tmp_path, "toy", 1).failed
    assert list(failed) == ["a"]
    assert failed["a"].startswith("its process died (exit code 3). What is done is kept")
    assert read_result(tmp_path, "b") is not None


def test_progress_lines_have_the_names_that_users_gave(tmp_path, capsys):
    carry_out_all([Titled("a")], tmp_path, "toy", 1)
    assert "1 of 1  own.a: fine" in capsys.readouterr().err
    assert read_result(tmp_path, "a") is not None


def test_what_has_a_result_is_not_carried_out_again(tmp_path, no_process):
    write_result(tmp_path, "a", {})
    assert carry_out_all([Toy("a")], tmp_path, "toy") == Outcome({})


class Slow:
    """Claims of a machine that is behind: another ends each job before this one has it."""

    def __init__(self, folder, refused=()):
        self.folder, self.refused, self.asked, self.ended = folder, refused, [], []

    def take(self, name):
        self.asked.append(name)
        if name not in self.refused:
            write_result(self.folder, name, {"there": "elsewhere"})
        return name not in self.refused

    def failures(self):
        return {}

    def end(self, name, error=None):
        self.ended.append((name, error))


def test_what_another_machine_has_ended_meanwhile_is_not_done_again(tmp_path):
    claims = Slow(tmp_path)
    assert workers._ready([Toy("a")], {"a"}, tmp_path, claims) is None
    assert claims.ended == [("a", None)]


def test_what_has_failed_on_another_machine_is_not_tried_again(tmp_path, capsys):
    """Succeeds here."""
    there, here = (open_claims(f"sqlite:///{tmp_path}/jobs.db").named("token") for _ in range(2))
    assert there.take("a")
    assert there.take("else")  # (it is still at work)
    there.end("a", "ZeroDivisionError: by nothing")
    folder = tmp_path / "x"
    folder.mkdir()
    jobs = [Toy("a"), Toy("b", ("a",)), Toy("c", fails=True)]
    failed = carry_out_all(jobs, folder, "toy", 1, here).failed
    assert failed == {"a": "ZeroDivisionError: by nothing", "c": "ZeroDivisionError: by nothing"}
    assert read_result(folder, "a") is None
    assert read_result(folder, "b") is not None
    assert "a: failed elsewhere: ZeroDivisionError" in capsys.readouterr().err
    assert there.failures() == failed


def test_idle_workers_do_not_all_ask_for_what_was_refused(tmp_path, monkeypatch):
    claims = Slow(tmp_path, refused=("a",))
    claims.beat = lambda: None

    def look(pipes, timeout):
        write_result(tmp_path, "a", {})
        return []

    monkeypatch.setattr(workers, "wait", look)
    crew = [workers._Worker(number, None, None) for number in range(3)]
    with JobDisplay(1, 0) as display:
        assert workers._supervise(crew, [Toy("a")], tmp_path, display, claims) == {}
    assert claims.asked == ["a"]


@pytest.mark.parametrize("count", [0, -1, 10**6])
def test_impossible_numbers_of_workers_are_refused(count, tmp_path, no_process):
    with pytest.raises(InputError, match="workers: expected 1 to"):
        carry_out_all([Toy("a")], tmp_path, "toy", count)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, no_process):
    (tmp_path / "results").write_text("")
    with pytest.raises(InputError, match="is no folder; choose another name for the toy"):
        carry_out_all([Toy("a")], Path(tmp_path / "results"), "toy")
