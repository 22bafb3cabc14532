"""Claims: only one machine gets a job, and a dead machine's job is free again."""

import socket

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from spacetime_en import InputError
from spacetime_en.compare import claims as module
from spacetime_en.compare.claims import open_claims


@pytest.fixture
def again(tmp_path):
    """Opens a storage as another machine."""
    return lambda: open_claims(f"sqlite:///{tmp_path}/jobs.db").named("token")


@pytest.fixture
def machines(again):
    """Two machines that share a storage."""
    return again(), again()


def test_a_job_goes_to_one_of_two(machines):
    one, other = machines
    assert one.take("a")
    assert not other.take("a")
    assert other.take("b")
    one.beat()
    assert not other.take("a")


def test_a_job_that_was_given_back_is_free_again(machines):
    one, other = machines
    assert one.take("a")
    one.release()
    assert one.mine == {}
    assert other.failures() == {}
    assert other.take("a")


def test_a_job_that_failed_has_failed_for_all_that_are_at_work(machines, again):
    one, other = machines
    assert one.take("a")
    assert one.take("b")
    one.end("a", "out of luck")
    assert (one.ended, other.ended) == ({"a"}, set())
    late = again()  # comes while the first is at its second job
    for machine in (one, other, late):
        assert not machine.take("a")
        assert machine.failures() == {"a": "out of luck"}


def test_who_asks_again_when_nobody_is_at_work_may_try_what_failed(machines, again):
    one, other = machines
    assert one.take("a")
    one.end("a", "out of luck")
    assert not other.take("a")
    later = again()
    assert later.failures() == {}
    assert later.take("a")
    later.end("a", "again")
    assert other.failures() == {"a": "again"}


def test_a_job_that_is_done_but_has_no_result_is_done_again(machines):
    one, other = machines
    assert one.take("a")
    one.end("a")
    assert other.take("a")  # (whoever asks has found no result)


def test_the_jobs_of_a_dead_process_are_free_at_once(machines, monkeypatch):
    one, other = machines
    for name, host in (("here", socket.gethostname()), ("elsewhere", "another-machine")):
        monkeypatch.setattr(module, "worker_name", lambda host=host: f"{host}:{2**22 + 1}")
        assert one.take(name)
    assert other.take("here")
    assert not other.take("elsewhere")  # (which cannot be asked; its heartbeat will tell)


def silent_for(claims, seconds):
    """Set the heartbeats of all jobs back."""
    with claims.storage.engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, :ago)"),
            {"ago": f"-{seconds} seconds"},
        )


def test_the_jobs_of_a_machine_that_is_silent_are_free_again(machines, monkeypatch):
    one, other = machines
    monkeypatch.setattr(module, "worker_name", lambda: "another-machine:1")
    assert one.take("a")
    silent_for(one, 100)
    assert not other.take("a")
    silent_for(one, 100)
    other.beat()
    assert other.take("a")


def test_one_that_was_believed_dead_may_end_its_job_all_the_same(machines):
    one, other = machines
    assert one.take("a")
    silent_for(one, 200)
    other.beat()
    assert other.take("a")
    one.end("a")
    assert not one.take("a")  # it is the other's


def test_a_job_whose_worker_never_said_its_name_is_free_after_a_while(machines):
    one, other = machines
    waiting = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs={"job": "a"})
    one.study.add_trial(waiting)
    (trial,) = one.study.get_trials()
    one.storage.set_trial_state_values(trial._trial_id, state=TrialState.RUNNING)
    other.beat()
    assert not other.take("a")
    with one.storage.engine.begin() as connection:
        earlier = "UPDATE trials SET datetime_start = datetime(datetime_start, '-200 seconds')"
        connection.execute(sqlalchemy.text(earlier))
    fresh = open_claims(str(one.storage.engine.url)).named("token")
    fresh.beat()
    assert fresh.take("a")


def test_a_job_is_known_to_be_taken_before_anything_else_is_written(machines, monkeypatch):
    one, other = machines
    monkeypatch.setattr(one.storage, "set_trial_user_attr", None)  # it dies there
    with pytest.raises(TypeError):
        one.take("a")
    silent_for(one, 200)
    other.beat()
    assert other.take("a")


def test_a_storage_that_is_gone_is_one_sentence(machines):
    one, _ = machines
    assert one.take("a")
    with one.storage.engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE trial_heartbeats"))
    with pytest.raises(InputError, match=r"storage: cannot be used any more \(.*no such table"):
        one.beat()


def test_redis_has_no_heartbeats():
    with pytest.raises(InputError, match="storage: Redis cannot tell whether a machine"):
        open_claims("redis://host:6379/0")


def test_two_that_add_the_same_job_agree_on_the_first(machines):
    one, other = machines
    for _ in range(2):  # as if both had found it missing
        waiting = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs={"job": "a"})
        one.study.add_trial(waiting)
    assert other.take("a")
    assert not one.take("a")


def test_a_job_that_another_ends_while_one_asks_for_it_is_not_taken(machines, monkeypatch):
    one, two = machines
    assert one.take("a")
    alive, asked = two._alive, []

    def and_then_it_ends(name):
        found = alive(name)
        asked.append(name)
        if len(asked) == 2:  # it was seen to be taken, and is asked for once more
            one.end(name)
        return found

    monkeypatch.setattr(two, "_alive", and_then_it_ends)
    assert not two.take("a")


def test_an_unreachable_storage_is_one_sentence():
    with pytest.raises(InputError, match=r"storage: .* cannot be opened"):
        open_claims("sqlite:////nowhere/at/all.db")
    with pytest.raises(InputError, match=r"storage: nothing://me:\*\*\*@host/db cannot be opened"):
        open_claims("nothing://me:secret@host/db")
    assert open_claims(None) is None
