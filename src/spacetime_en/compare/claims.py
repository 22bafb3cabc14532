"""Who does which job, where several machines work on one comparison.

Each job is a trial in an Optuna study: waiting, running, and in the end complete or failed. A
storage changes a trial from waiting to running for one worker only, and heartbeats tell which
workers are alive.
"""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from spacetime_en._util.errors import InputError
from spacetime_en.runs.search import fail_dead_trials, join_study, open_storage, worker_name

JOB, WORKER = "job", "worker"  # attributes of a trial


class Claims:
    """The jobs of one comparison that this process has claimed.

    Args:
        study: whose trials are the jobs.
        storage: that it lives in.
    """

    def __init__(self, study: optuna.Study, storage: BaseStorage) -> None:
        self.study, self.storage = study, storage
        self.mine: dict[str, int] = {}  # by the name of the job, the number of its trial

    def take(self, name: str) -> bool:
        """Claim a job that has no result; False if somebody else is at it."""
        if not self._alive(name):
            fail_dead_trials(self.study)
        if not self._alive(name):
            waiting = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs={JOB: name})
            self.study.add_trial(waiting)
        # Two workers may have added one at the same time: only the first may be taken.
        first = min(self._alive(name), key=lambda trial: trial.number)
        identity = first._trial_id
        if first.state is not TrialState.WAITING:
            return False
        if not self.storage.set_trial_state_values(identity, state=TrialState.RUNNING):
            return False
        self.storage.set_trial_user_attr(identity, WORKER, worker_name())
        self.mine[name] = identity
        self.beat()
        return True

    def beat(self) -> None:
        """Tell the others that this process is alive; give up the jobs of those that are not."""
        if isinstance(self.storage, RDBStorage):
            for identity in self.mine.values():
                self.storage.record_heartbeat(identity)
        fail_dead_trials(self.study)

    def end(self, name: str, well: bool) -> None:
        """Give a job back: done, or for somebody else to try."""
        state = TrialState.COMPLETE if well else TrialState.FAIL
        values = [0.0] if well else None
        self.storage.set_trial_state_values(self.mine.pop(name), state=state, values=values)

    def release(self) -> None:
        """Give all jobs back, for others to go on with."""
        for name in list(self.mine):
            self.end(name, well=False)

    def _alive(self, name: str) -> list[FrozenTrial]:
        states = (TrialState.WAITING, TrialState.RUNNING)
        trials = self.study.get_trials(states=states, deepcopy=False)
        return [trial for trial in trials if trial.user_attrs.get(JOB) == name]


class ClaimStorage:
    """A storage that machines share, before it is known for which comparison."""

    def __init__(self, url: str) -> None:
        if url.startswith("redis"):
            raise InputError(
                "storage: Redis cannot tell whether a machine that took a job is still alive; give "
                "the address of a data base, such as postgresql://..."
            )
        self.storage = open_storage(url, Path())

    def named(self, token: str) -> Claims:
        """The claims of the comparison with this token."""
        return Claims(join_study(self.storage, f"{token}--jobs", seed=0), self.storage)


def open_claims(url: str | None) -> ClaimStorage | None:
    """The storage at an address, opened; None if there is none."""
    return None if url is None else ClaimStorage(url)
