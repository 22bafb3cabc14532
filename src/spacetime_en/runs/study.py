"""Studies: Optuna's records of trials, in a file or a database shared by workers."""

from __future__ import annotations

import json
import os
import random
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import (
    JournalFileBackend,
    JournalFileSymlinkLock,
    JournalRedisBackend,
)
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from spacetime_en._util.errors import InputError, first_line, without_password
from spacetime_en._util.files import process_exists
from spacetime_en._util.schema import check_no_link, open_regular
from spacetime_en.training.batches import derive_seed

BEST_FILE = "best.yaml"
JOURNAL = "study.journal"
CREATE_STUDY = 0  # the operation in the first entry of a journal
GRACE = 180  # seconds without a heartbeat after which a worker counts as dead
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


def open_storage(storage: str | None, folder: Path) -> BaseStorage:
    """The storage of a study: a URL, or None for a file in the folder."""
    if storage is None:
        path = folder / JOURNAL
        check_no_link(path)
        backend = JournalFileBackend(str(path))
        _check_journal(path)
        return JournalStorage(backend)
    try:
        if storage.startswith("redis"):
            return JournalStorage(JournalRedisBackend(storage))
        return _database(storage)
    except ImportError as error:
        raise InputError(
            f"storage: {storage.split(':')[0]} needs a package that is not installed ({error}); "
            "for PostgreSQL: pip install 'spacetime-en[postgres]'."
        ) from None
    except Exception as error:  # any error of the database or its driver
        what = without_password(f"{storage} cannot be opened ({first_line(error)})")
        raise InputError(
            f"storage: {what}; check the address, put a copy of a damaged file in its place, or "
            "begin another study elsewhere."
        ) from None


@contextmanager
def readable(storage: str | None, folder: Path) -> Iterator[None]:
    """Turn any Optuna error about a study into one sentence."""
    try:
        yield
    except (InputError, MemoryError, OSError):
        raise
    except Exception as error:  # any error that a damaged study causes
        where = f"storage: {without_password(storage)}" if storage else str(folder / JOURNAL)
        raise _unreadable(where, first_line(error)) from None


@contextmanager
def reachable() -> Iterator[None]:
    """Turn any error of a data base that was lost during the work into one sentence."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        what = without_password(first_line(error.__cause__ or error))
        raise InputError(
            f"storage: cannot be used any more ({what}); what is done is kept: the same command "
            "goes on from here."
        ) from None


def _check_journal(path: Path) -> None:
    """Reject a journal with a damaged line.

    Optuna ignores one at the end and appends the next entry to it, which is then lost.
    """
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()  # another worker may be in the middle of writing a line
    try:
        with open_regular(path) as file:
            number = 0
            for number, line in enumerate(file, start=1):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):  # (undecodable bytes also raise a ValueError)
                    entry = None
                whole = isinstance(entry, dict) and line.endswith(b"\n")
                if not whole or (number == 1 and entry.get("op_code") != CREATE_STUDY):
                    raise _unreadable(str(path), f"line {number} is damaged or cut off")
        if number == 0 and (path.parent / BEST_FILE).exists():
            raise _unreadable(str(path), f"it is empty, though there is a {BEST_FILE}")
    finally:
        lock.release()


def _unreadable(where: str, why: str) -> InputError:
    return InputError(
        f"{where}: the study cannot be read ({why}); restore it from a copy, repair it, or "
        "begin another elsewhere."
    )


def _database(url: str, tries: int = 5) -> RDBStorage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        for left in reversed(range(tries)):
            try:
                # A killed worker's heartbeat stops; others then count its trial as failed.
                return RDBStorage(url, heartbeat_interval=60, grace_period=GRACE)
            except Exception as error:
                # Workers that start together may all try to create the tables; one succeeds, the
                # others find that a table or its version row "exists", or must be unique.
                beaten = isinstance(error, IntegrityError) or "exist" in str(error)
                if left == 0 or not beaten:
                    raise
                time.sleep(random.uniform(0.2, 1.0))
    raise AssertionError


def join_study(storage: BaseStorage, name: str, seed: int) -> optuna.Study:
    """Create the study, or join it; only the worker that creates it samples by the seed alone."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(storage=storage, study_name=name)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=name)
        # With the same seed, all workers would suggest the same.
        seed = derive_seed(seed, os.getpid(), time.time_ns())
    seed_sampler(study, seed)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_min_trials=4)
    return study


def seed_sampler(study: optuna.Study, seed: int) -> None:
    """Make the study's next suggestions depend on this seed and on its trials alone."""
    study.sampler = optuna.samplers.TPESampler(seed=seed % 2**32)


def fail_dead_trials(study: optuna.Study, alone: bool = False) -> int:
    """Mark the trials of dead workers as failed, as far as this process can tell.

    Args:
        study: the study.
        alone: whether this process is the study's only worker, and has no trial running: then all
            running trials are marked as failed.
    Returns: the number of trials that are finished or running.
    """
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)  # (does nothing without heartbeats)
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.RUNNING and (alone or _is_dead(trial)):
            with suppress(optuna.exceptions.UpdateFinishedTrialError):  # by another worker
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        elif trial.state is TrialState.RUNNING or trial.state in FINISHED:
            count += 1
    return count


def worker_name() -> str:
    """An identifier of this process on this machine."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_dead(trial: FrozenTrial) -> bool:
    """Whether a trial's worker ran on this machine and has ended; elsewhere it cannot be known.

    A worker that has not even recorded its name died right after it started.
    """
    worker, begun = trial.user_attrs.get("worker"), trial.datetime_start
    if worker is None:
        return begun is not None and (datetime.now() - begun).total_seconds() > GRACE
    host, _, pid = worker.rpartition(":")
    return host == socket.gethostname() and pid.isdigit() and not process_exists(int(pid))
