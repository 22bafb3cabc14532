import os
import re
import signal
import sys
import time

import optuna
import pytest
import sqlalchemy
import torch
from optuna.distributions import FloatDistribution
from optuna.storages import RDBStorage
from optuna.trial import TrialState

import spacetime_en.runs.search as search_module
from spacetime_en import InputError
from spacetime_en._util.errors import Interrupted
from spacetime_en.cli import main
from spacetime_en.runs.config import Config
from spacetime_en.runs.search import Dimension, search, tried
from spacetime_en.runs.study import join_study, open_storage
from spacetime_en.training import TrainingProgress
from tests.conftest import TINY
from tests.integration.commands import TASK, finish, start

TEXT = f"""
preset: linear
task:
  {{name: charged, counts: {list(TINY["counts"])}, target_steps: {TINY["target_steps"]}, length: 3}}
training: {{batch_size: 16, steps: 10}}
"""


@pytest.fixture(autouse=True)
def cached(monkeypatch, cache, tiny_task):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(cache))


def config(text=TEXT):
    return Config.from_yaml(text, "here")


def study(folder, storage=None):
    return optuna.load_study(study_name="spacetime", storage=open_storage(storage, folder))


def test_a_search_finds_the_better_setting_and_train_takes_it(tmp_path):
    said = []
    space = ["lr=1e-5,3e-2", "batch_size=8:16"]
    best = search(config(), tmp_path, trials=6, space=space, notify=said.append)
    assert len(said) == 6
    assert said[-1].startswith("trial 6 of 6: lr ")
    assert best.training.lr == 3e-2  # the other is too small for ten steps
    assert 8 <= best.training.batch_size <= 16
    assert Config.from_yaml((tmp_path / "best.yaml").read_text(), "best.yaml") == best


def test_a_worker_has_one_core(tmp_path, set_threads):
    set_threads(2)
    seen = []
    search(config(), tmp_path, trials=1, notify=lambda text: seen.append(torch.get_num_threads()))
    assert seen == [1]
    assert torch.get_num_threads() == 2


def test_the_same_seed_suggests_the_same(tmp_path):
    for name in ("a", "b"):
        search(config(), tmp_path / name, trials=3, notify=lambda text: None)
    one, other = ([t.params for t in study(tmp_path / n).trials] for n in ("a", "b"))
    assert one == other


@pytest.mark.filterwarnings("ignore:Heartbeat of storage:UserWarning")  # of Optuna's `ask`
@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_running_it_again_adds_only_what_is_missing(tmp_path, storage):
    url = storage and storage.format(tmp_path)
    for trials, there in ((2, 2), (2, 2), (3, 3)):
        search(config(), tmp_path, trials=trials, storage=url, notify=lambda text: None)
        assert len(study(tmp_path, url).trials) == there


def test_what_is_asked_for_is_tried_first_and_again_if_that_failed(tmp_path):
    first = [{"lr": 2e-3}, {"lr": 5e-3}]
    search(config(), tmp_path, trials=1, first=first, notify=lambda line: None)
    begun = study(tmp_path)
    begun.tell(begun.ask(), state=TrialState.FAIL)  # the second, of a worker that died
    search(config(), tmp_path, trials=3, first=first, notify=lambda line: None)
    rates = [t.params["lr"] for t in study(tmp_path).trials if t.state is TrialState.COMPLETE]
    assert rates[:2] == [2e-3, 5e-3]
    assert rates[2] not in rates[:2]
    found = tried(tmp_path)
    assert {settings["lr"] for settings, _ in found} == set(rates)
    assert [error for _, error in found] == sorted(error for _, error in found)


def test_trials_that_fall_behind_are_pruned_and_diverging_ones_do_not_end_the_search(tmp_path):
    said = []
    space = ["lr=3e-2,1e-12"]
    search(config(), tmp_path / "a", trials=12, space=space, notify=said.append)
    states = [t.state for t in study(tmp_path / "a").trials]
    assert TrialState.PRUNED in states
    assert all(
        t.params["lr"] == "1e-12" for t in study(tmp_path / "a").trials if t.state.name == "PRUNED"
    )
    wild = TEXT.replace(", steps: 10", ", steps: 10, clip: null")
    search(config(wild), tmp_path / "b", trials=6, space=["lr=1e-2,1e9"], notify=said.append)
    assert any("lr 1e9: diverged" in text for text in said)


def test_a_study_of_something_else_is_not_joined(tmp_path):
    search(config(), tmp_path, trials=1, notify=lambda text: None)
    for other, space in (
        (TEXT.replace("target_steps: 10", "target_steps: 9"), ["lr=1e-5:1e-2:log"]),
        (TEXT, ["lr=1e-5,1e-2"]),
    ):
        with pytest.raises(InputError, match="study: 'spacetime' was begun with other settings"):
            search(config(other), tmp_path, trials=2, space=space)
    search(config(), tmp_path, trials=2, notify=lambda text: None)


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_the_folder_of_a_run_is_no_place_for_a_study(tmp_path, storage):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text("{}")
    url = storage and storage.format(tmp_path)
    with pytest.raises(InputError, match=r"x: holds run.json, and is no study; choose another"):
        search(config(), tmp_path / "x", trials=1, storage=url)
    assert os.listdir(tmp_path / "x") == ["run.json"]


def test_settings_that_cannot_be_fail_alone(tmp_path, monkeypatch):
    said = []
    build = Config.build_model

    def fussy(self, task):
        if self.training.batch_size == 8:
            raise InputError("batch_size: eight is an unlucky number.")
        return build(self, task)

    monkeypatch.setattr(Config, "build_model", fussy)
    search(config(), tmp_path, trials=3, space=["batch_size=8,16"], notify=said.append)
    assert any("unlucky" in text for text in said)
    states = [t.state for t in study(tmp_path).trials]
    assert states.count(TrialState.COMPLETE) + states.count(TrialState.PRUNED) == 3
    assert TrialState.RUNNING not in states


def test_no_trial_begins_after_the_time(tmp_path):
    with pytest.raises(InputError, match="no trial was finished"):
        search(config(), tmp_path, trials=3, timeout="0.000001s")
    with pytest.raises(InputError, match="trials: expected a positive"):
        search(config(), tmp_path, trials=0)


def test_the_space_may_reach_into_the_model_and_the_task(tmp_path):
    egnn = TEXT.replace("linear", "egnn")
    space = ["model.hidden=4,8", "task.target_steps=9,10"]
    best = search(config(egnn), tmp_path, trials=3, space=space, notify=lambda text: None)
    assert best.model["hidden"] in (4, 8)
    assert best.task["target_steps"] in ("9", "10")  # as words: it may be 1..10, too


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("lr", "space: expected NAME=LOW:HIGH"),
        ("lr=1e-2:1e-5", "space: expected NAME=LOW:HIGH"),
        ("lr=0:1:log", "space: expected NAME=LOW:HIGH"),
        ("lrr=1e-5:1e-2", "space: setting: there is no 'lrr'; did you mean 'lr'?"),
        ("model.hiden=1,2", "space: setting: there is no 'model.hiden'"),
        ("optimiser=adam,sgd", "space: training.optimiser: expected .*, found 'sgd'"),
        ("lr=-1:1", "lr: expected a positive number"),
    ],
)
def test_a_bad_space_is_told_before_anything_is_trained(tmp_path, space, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        search(config(), tmp_path / "x", space=[space])
    assert not (tmp_path / "x").exists()


def test_ranges_of_whole_numbers_give_whole_numbers():
    trial = optuna.trial.FixedTrial({"a": 3, "b": 0.5})
    assert Dimension.parse("a=1:8").suggest(trial) == 3
    assert Dimension.parse("b=1e-2:1:log").suggest(trial) == 0.5


@pytest.mark.parametrize(
    ("old", "new"),
    [(rb'"question":{', b'"question":3,"x":{'), (rb'"values":\[[^]]*\]', b'"values":["a"]')],
)
def test_a_study_with_other_things_in_it_is_a_sentence_and_stays_as_it_was(tmp_path, old, new):
    search(config(), tmp_path, trials=1, notify=lambda text: None)
    journal, best = tmp_path / "study.journal", (tmp_path / "best.yaml").read_bytes()
    damaged = re.sub(old, new, journal.read_bytes())
    assert damaged != journal.read_bytes()
    journal.write_bytes(damaged)
    with pytest.raises(InputError, match=r"study\.journal: the study cannot be read .*; restore"):
        search(config(), tmp_path, trials=2)
    assert journal.read_bytes().startswith(damaged)  # (Optuna notes every attempt to join)
    assert (tmp_path / "best.yaml").read_bytes() == best


SEARCH = ["search", "waiting.Waiting", *TASK, "--steps", "10", "--batch-size", "16"]

# However fast a worker is, no trial goes on before both workers have one.
WAITING = """
import os, time
from pathlib import Path
from spacetime_en import LinearDynamics

class Waiting(LinearDynamics):
    def __init__(self) -> None:
        marks = Path("marks")
        marks.mkdir(exist_ok=True)
        (marks / str(os.getpid())).touch()
        end = time.monotonic() + 200
        while len(list(marks.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        super().__init__()
"""


def test_a_data_base_knows_which_workers_are_alive(tmp_path, recwarn):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    search(config(), tmp_path, trials=2, storage=storage, notify=lambda text: None)
    with RDBStorage(storage).engine.connect() as connection:
        beats = connection.execute(
            sqlalchemy.text("SELECT COUNT(*) FROM trial_heartbeats")
        ).scalar()
    assert beats == 2  # each trial's first; the second would come after a minute
    assert not [w for w in recwarn if "eartbeat" in str(w.message)]


@pytest.mark.parametrize("kills", [1, 4])
def test_who_works_alone_gives_up_the_trials_of_other_hosts(tmp_path, kills):
    """As in a container, whose name changes: all rates are tried, and none counts that was not."""
    begun = join_study(open_storage(None, tmp_path), "spacetime", seed=0)
    first = [{"lr": 2e-3}, {"lr": 5e-3}]
    for number in range(kills):
        begun.enqueue_trial(first[number % 2])
        begun.ask({"lr": FloatDistribution(1e-5, 1e-2, log=True)}).set_user_attr(
            "worker", f"another-host:{number}"
        )
    search(config(), tmp_path, trials=2, first=first, notify=lambda line: None, alone=True)
    assert {settings["lr"] for settings, _ in tried(tmp_path)} == {2e-3, 5e-3}
    assert [t.state for t in study(tmp_path).trials[:kills]] == [TrialState.FAIL] * kills


def test_a_storage_that_fails_before_the_first_trial_says_why(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(optuna.Study, "optimize", full)
    with pytest.raises(OSError, match="no space left"):
        search(config(), tmp_path, trials=1, notify=lambda text: None)


def test_a_storage_that_is_lost_during_a_trial_is_one_sentence(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'study.db'}"

    def lost(*_, **__):
        with sqlalchemy.create_engine(url).begin() as connection:
            connection.execute(sqlalchemy.text("DROP TABLE trial_user_attributes"))
        raise Interrupted

    monkeypatch.setattr(search_module, "fit", lost)
    with pytest.raises(InputError, match=r"storage: cannot be used any more .*no such table"):
        search(config(), tmp_path, trials=1, storage=url, notify=lambda text: None)


def test_an_interrupted_trial_is_over(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise Interrupted

    monkeypatch.setattr(search_module, "fit", interrupted)
    with pytest.raises(Interrupted):
        search(config(), tmp_path, trials=1, notify=lambda text: None)
    assert [t.state for t in study(tmp_path).trials] == [TrialState.FAIL]


@pytest.mark.parametrize("storage", ["file", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_two_processes_work_on_one_study(tmp_path, cache, storage):
    url = None if storage == "file" else f"sqlite:///{tmp_path}/study.db"
    options = [] if url is None else ["--storage", url]
    for text in two_workers(tmp_path, cache, options):
        assert "preset: waiting.Waiting" in text
    trials = study(tmp_path, url).trials
    # A worker that saw nine begun may begin the tenth at the same moment as the other.
    assert 10 <= sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in trials) <= 11
    assert len({t.user_attrs["worker"] for t in trials}) == 2
    assert len({t.params["lr"] for t in trials}) == len(trials)  # nobody does the same twice


def two_workers(out, cache, options):
    code = out.with_name(f"{out.name}-code")  # (a study's folder holds nothing else)
    code.mkdir()
    (code / "waiting.py").write_text(WAITING)
    command = [*SEARCH, "--trials", "10", "--out", str(out), *options]
    return [finish(p) for p in [start(*command, cache=cache, cwd=code) for _ in range(2)]]


def test_a_killed_workers_trial_is_made_good(tmp_path, cache, monkeypatch):
    command = ["search", "linear", *TASK, "--max-time", "300s", "--trials", "1"]
    command += ["--out", str(tmp_path)]
    process = start(*command, cache=cache)
    end = time.monotonic() + 120
    while not any("RUNNING" in t.state.name for t in _trials(tmp_path)):
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    monkeypatch.setattr(
        search_module, "fit", lambda *_, **__: TrainingProgress(best=1.0)
    )  # at once
    monkeypatch.setattr(sys, "argv", ["spacetime", *command])
    main()
    assert [t.state for t in study(tmp_path).trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert os.path.exists(tmp_path / "best.yaml")


def _trials(folder):
    try:
        return [t for t in study(folder).trials if "worker" in t.user_attrs]
    except KeyError:
        return []
