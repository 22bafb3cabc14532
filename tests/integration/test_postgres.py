"""A study in PostgreSQL, on a server started by the test."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import optuna
import pytest

from spacetime_en.runs.study import open_storage
from tests.runs.test_search import two_workers


@pytest.fixture
def server():
    """The URL of a fresh database; its server listens on a socket in its own folder."""
    programs = [shutil.which(name) for name in ("initdb", "postgres")]
    pytest.importorskip("psycopg", reason="needs the extra postgres")
    if None in programs:
        pytest.skip("no PostgreSQL server on this machine (initdb, postgres)")
    # It refuses to run as root, and sockets have short paths.
    user = "nobody" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp())
    if user:
        shutil.chown(folder, user)
    try:
        made = subprocess.run(
            [programs[0], "-D", folder / "db", "-U", "spacetime", "--auth=trust"],
            user=user,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            pytest.skip(f"no PostgreSQL server can be started: {made.stderr.strip()[-200:]}")
        process = subprocess.Popen(
            [programs[1], "-D", folder / "db", "-k", folder, "-c", "listen_addresses="],
            user=user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if "ready to accept connections" in line:
                break
        else:
            pytest.skip("the PostgreSQL server did not start")
        try:
            yield f"postgresql+psycopg://spacetime@/postgres?host={folder}"
        finally:
            process.send_signal(signal.SIGINT)  # at once, whoever is still connected
            process.communicate(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow  # what the project does is the same as in a file, which is tested always
def test_two_processes_share_a_study_in_postgresql(tmp_path, cache, tiny_task, server):
    for text in two_workers(tmp_path, cache, ["--storage", server]):
        assert "preset: waiting.Waiting" in text
    storage = open_storage(server, tmp_path)
    trials = optuna.load_study(study_name="spacetime", storage=storage).trials
    storage.remove_session()
    storage.engine.dispose()
    assert 10 <= len(trials) <= 11
    assert len({t.user_attrs["worker"] for t in trials}) == 2
    assert not (tmp_path / "study.journal").exists()
