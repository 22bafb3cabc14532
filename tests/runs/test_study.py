"""Studies: damaged or inaccessible ones give one sentence, and stay unchanged."""

import os

import optuna
import pytest
from optuna.storages import RDBStorage
from sqlalchemy.exc import IntegrityError

from spacetime_en import InputError
from spacetime_en.runs.study import join_study, open_storage, readable


def join(folder, url=None):
    with readable(url, folder):
        return join_study(open_storage(url, folder), "spacetime", seed=0)


def test_a_storage_that_cannot_be_opened(tmp_path):
    with pytest.raises(InputError, match=r"storage: .* cannot be opened"):
        join(tmp_path, "sqlite:////nowhere/at/all.db")
    with pytest.raises(InputError, match="storage: "):
        join(tmp_path, "nodatabase://x")


@pytest.fixture
def journal(tmp_path):
    """Of a study with one trial."""
    study = join(tmp_path)
    study.tell(study.ask(), 1.0)
    (tmp_path / "best.yaml").write_text("preset: linear\n")
    return tmp_path / "study.journal"


DAMAGES = {
    "cut off in the last line": lambda found: found[:-9],
    "without the last line break": lambda found: found[:-1],
    "garbage in the middle": lambda found: found[:99] + b"\x00\xff\xfe" + found[102:],
    "garbage in the end": lambda found: found + b"\x80\x81\n",
    "nothing but garbage": lambda found: bytes(range(256)),
    "empty": lambda found: b"",
    "not objects": lambda found: b"1\n[2]\n",
    "nested without end": lambda found: b"[" * 100_000 + b"\n",
    "no text in UTF-8": lambda found: found.replace(b"spacetime", b"spac\xe9time"),
    "other objects": lambda found: b'{"a": 1}\n',
    "no such operation": lambda found: found + b'{"op_code": 99}\n',
    "without the beginning": lambda found: b"".join(found.splitlines(True)[1:]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_journal_is_a_sentence_and_stays_as_it_was(journal, damage):
    damaged = damage(journal.read_bytes())
    best = (journal.parent / "best.yaml").read_bytes()
    journal.write_bytes(damaged)
    with pytest.raises(
        InputError, match=r"study\.journal: the study cannot be read \(.*\); restore"
    ):
        join(journal.parent)
    assert journal.read_bytes().startswith(damaged)  # (Optuna notes every attempt to join)
    assert (journal.parent / "best.yaml").read_bytes() == best
    assert sorted(p.name for p in journal.parent.iterdir()) == ["best.yaml", "study.journal"]


def test_a_journal_that_is_no_file(tmp_path):
    journal = tmp_path / "study.journal"
    journal.mkdir()
    with pytest.raises(InputError, match=r"study\.journal: is a folder; expected a file"):
        join(tmp_path)
    journal.rmdir()
    os.mkfifo(journal)
    with pytest.raises(InputError, match=r"study\.journal: is no regular file"):
        join(tmp_path)
    journal.unlink()
    journal.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"study\.journal: is a link"):
        join(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("keep", [0, 100, 5_000, 20_000])  # bytes before the garbage
def test_a_damaged_data_base_is_a_sentence_and_stays_as_it_was(tmp_path, keep):
    path = tmp_path / "study.db"
    optuna.create_study(storage=open_storage(f"sqlite:///{path}", tmp_path), study_name="spacetime")
    found = path.read_bytes()
    damaged = found[:keep] + b"garbage!" * ((len(found) - keep) // 8)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"storage: sqlite:.*study\.db.* cannot be (opened|read) "):
        join(tmp_path, f"sqlite:///{path}")
    assert path.read_bytes() == damaged


def test_a_worker_that_is_beaten_to_the_tables_tries_again(tmp_path, monkeypatch):
    """What SQLite says to the second of two workers that make the same tables at once."""
    beaten = [IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed: alembic_version"))]

    def storage(*arguments, **options):
        if beaten:
            raise beaten.pop()
        return RDBStorage(*arguments, **options)

    monkeypatch.setattr("spacetime_en.runs.study.RDBStorage", storage)
    assert isinstance(open_storage(f"sqlite:///{tmp_path}/study.db", tmp_path), RDBStorage)
