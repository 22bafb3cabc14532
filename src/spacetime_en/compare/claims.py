"""Which worker does which job when several machines share a comparison.

Each job is a trial in an Optuna study: waiting, running, and finally complete or failed. The
storage lets only one worker change a trial from waiting to running, and heartbeats tell which
workers are alive. A trial that failed with an error is over for all machines in this session, which
ends when none of them has a job; a trial that failed without one was interrupted, and is free.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from spacetime_en._util.errors import InputError
from spacetime_en.runs.study import (
    fail_dead_trials,
    join_study,
    open_storage,
    reachable,
    worker_name,
)

JOB, WORKER, ERROR = "job", "worker", "error"  # attributes of a trial
SITTING = "sitting"  # attribute of the study: the number of this session's first trial


class Claims:
    """The jobs of one comparison that this process has claimed.

    Args:
        study: its trials are the jobs.
        storage: of the study.
    """

    def __init__(self, study: optuna.Study, storage: BaseStorage) -> None:
        self.study, self.storage = study, storage
        self.mine: dict[str, int] = {}  # job name -> number of its trial
        self.ended: set[str] = set()  # names of jobs that were carried out here
        fail_dead_trials(study)
        trials = study.get_trials(deepcopy=False)
        if not any(trial.state is TrialState.RUNNING for trial in trials):
            study.set_user_attr(SITTING, len(trials))

    @reachable()
    def take(self, name: str) -> bool:
        """Claim a job that has no result; False if another worker has it, or it has failed."""
        if not self._alive(name):
            fail_dead_trials(self.study)
        if not self._alive(name):
            if name in self.failures():
                return False
            waiting = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs={JOB: name})
            self.study.add_trial(waiting)
        # Two workers may have added one at the same time: only the first may be taken.
        first = min(self._alive(name), key=lambda trial: trial.number, default=None)
        if first is None:  # another worker has taken and ended it meanwhile
            return False
        identity = first._trial_id
        if first.state is not TrialState.WAITING:
            return False
        try:
            if not self.storage.set_trial_state_values(identity, state=TrialState.RUNNING):
                return False
            self._record(identity)  # at once: without it nobody would notice our death
            self.storage.set_trial_user_attr(identity, WORKER, worker_name())
        except UpdateFinishedTrialError:  # another worker has ended it or given it up
            return False
        self.mine[name] = identity
        return True

    def _record(self, identity: int) -> None:
        if isinstance(self.storage, RDBStorage):
            self.storage.record_heartbeat(identity)

    @reachable()
    def beat(self) -> None:
        """Send a heartbeat, and give up the jobs of workers that have none."""
        for identity in self.mine.values():
            self._record(identity)
        fail_dead_trials(self.study)

    @reachable()
    def failures(self) -> dict[str, str]:
        """The errors of all jobs that failed in this session, on any machine."""
        since = self.study.user_attrs[SITTING]
        failed = self.study.get_trials(states=(TrialState.FAIL,), deepcopy=False)
        return {
            trial.user_attrs[JOB]: trial.user_attrs[ERROR]
            for trial in failed
            if trial.number >= since and ERROR in trial.user_attrs
        }

    @reachable()
    def end(self, name: str, error: str | None = None) -> None:
        """Release a job that is done, or that failed with an error."""
        self.ended.add(name)
        self._give_back(name, done=error is None, error=error)

    @reachable()
    def _give_back(self, name: str, *, done: bool, error: str | None = None) -> None:
        identity = self.mine.pop(name)
        state, values = (TrialState.COMPLETE, [0.0]) if done else (TrialState.FAIL, None)
        with suppress(UpdateFinishedTrialError):  # others believed us dead, and gave it up
            if error is not None:
                self.storage.set_trial_user_attr(identity, ERROR, error)
            self.storage.set_trial_state_values(identity, state=state, values=values)

    def release(self) -> None:
        """Release all jobs, for others to continue."""
        with suppress(InputError):  # (the storage is gone: the missing heartbeats will tell)
            for name in list(self.mine):
                self._give_back(name, done=False)

    def _alive(self, name: str) -> list[FrozenTrial]:
        states = (TrialState.WAITING, TrialState.RUNNING)
        trials = self.study.get_trials(states=states, deepcopy=False)
        return [trial for trial in trials if trial.user_attrs.get(JOB) == name]


class ClaimStorage:
    """A storage shared by machines, before its comparison is known."""

    def __init__(self, url: str) -> None:
        if url.startswith("redis"):
            raise InputError(
                "storage: Redis cannot tell whether a machine that took a job is still alive; give "
                "the address of a data base, such as postgresql://..."
            )
        self.storage = open_storage(url, Path())

    @reachable()
    def named(self, token: str) -> Claims:
        """The claims of the comparison with this token."""
        return Claims(join_study(self.storage, f"{token}--jobs", seed=0), self.storage)


def open_claims(url: str | None) -> ClaimStorage | None:
    """Open the storage at a URL; None if there is none."""
    return None if url is None else ClaimStorage(url)
