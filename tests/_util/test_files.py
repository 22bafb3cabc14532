"""Files and folders are written atomically, by one process at a time."""

import errno
import os
import resource
import socket
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from spacetime_en import InputError
from spacetime_en._util.files import (
    cache_folder,
    create_atomically,
    locked,
    make_folder,
    refuse_foreign,
    replace_folder,
    write_atomically,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from spacetime_en._util.files import create_atomically
with create_atomically(Path(sys.argv[1])) as path:
    path.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def hidden(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".spacetime-en-")]


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a"
    write_atomically(path, lambda part: part.write_text("old"))

    def fail(part):
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    write_atomically(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def test_everybody_may_read_what_is_written(tmp_path):
    write_atomically(tmp_path / "a", lambda part: save_file({"a": torch.ones(1)}, part))
    (tmp_path / "b").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes[0] == modes[1]


def test_names_may_be_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("x" * 255)
    write_atomically(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new"


def make(target, text, then=lambda: None):
    """A new file, or inside a new folder if the name says so."""
    with create_atomically(target) as path:
        if "folder" in path.name:
            path.mkdir()
            path = path / "inside"
        path.write_text(text)
        then()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_new_appears_when_it_is_whole_and_is_never_overwritten(tmp_path, kind):
    target, away = tmp_path / "deep" / kind, tmp_path / kind
    with pytest.raises(ZeroDivisionError):
        make(target, "half", lambda: 1 / 0)
    assert os.listdir(tmp_path) == []

    def meanwhile():
        assert not target.exists()
        with pytest.raises(InputError, match=f"another process .number {os.getpid()} on"):
            make(target, "two at once")

    make(target, "first", meanwhile)
    with pytest.raises(InputError, match=f"{kind}: exists already"):
        make(target, "second")
    target.rename(away)
    with pytest.raises(InputError, match="written by another process"):
        make(target, "second", lambda: away.rename(target))
    assert (target / "inside" if kind == "folder" else target).read_text() == "first"
    assert os.listdir(target.parent) == [kind]


def test_a_folder_takes_the_place_of_another_when_it_is_whole(tmp_path):
    target = tmp_path / "folder"

    def put(text, then=lambda: None, current=lambda: False):
        def write(part):
            part.mkdir()
            (part / "inside").write_text(text)
            then()

        replace_folder(target, write, current)

    put("first")
    with pytest.raises(ZeroDivisionError):
        put("half", lambda: 1 / 0)
    assert (target / "inside").read_text() == "first"
    put("second")
    assert (target / "inside").read_text() == "second"
    put("last", lambda: put("another's"))
    assert (target / "inside").read_text() == "last"
    put("the same", current=lambda: (target / "inside").read_text() == "last")
    assert (target / "inside").read_text() == "last"
    assert os.listdir(tmp_path) == ["folder"]


def test_what_a_killed_process_left_is_swept_by_the_next_that_writes_beside_it(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], timeout=120)
    assert killed.returncode == -9
    assert len(hidden(tmp_path)) == 2  # the folder and its lock
    write_atomically(tmp_path / "b", lambda part: part.write_text("new"))
    assert os.listdir(tmp_path) == ["b"]
    with create_atomically(tmp_path / "a") as path:  # the other process has stopped writing it
        path.write_text("whole")


def test_what_is_at_work_or_of_another_machine_is_not_swept(tmp_path, monkeypatch):
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "elsewhere-1")
        making = create_atomically(tmp_path / "a")
        making.__enter__().write_text("half")
        for path in hidden(tmp_path):  # its locks are not seen here
            if path.suffix == ".lock":
                path.unlink()
    with create_atomically(tmp_path / "b") as path:
        path.write_text("half")
        write_atomically(tmp_path / "c", lambda part: part.write_text("new"))
        assert len([path for path in hidden(tmp_path) if path.is_dir()]) == 2
    with pytest.raises(
        InputError, match=r"on elsewhere-1\) is writing it; .* delete .*elsewhere-1"
    ):
        make(tmp_path / "a", "two at once")
    making.__exit__(None, None, None)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.fixture
def full():
    """No file may grow beyond a few bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_npy(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(1000))


def write_h5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(10_000)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("x" * 1000),
        write_npy,
        lambda path: save_file({"a": torch.ones(1000)}, path),
        write_h5,
    ],
    ids=["text", "numpy", "safetensors", "hdf5"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_full_disk_names_the_file_whoever_writes(tmp_path, full, write):
    full()
    with pytest.raises(OSError, match="File too large") as error:
        write_atomically(tmp_path / "a", write)
    assert error.value.errno == errno.EFBIG
    assert error.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be a folder, because it is a file"):
        make_folder(tmp_path / "file")
    with pytest.raises(InputError, match=f"because {tmp_path}/file is a file"):
        make_folder(tmp_path / "file" / "deep" / "er")


def test_a_folder_of_something_else_is_refused(tmp_path):
    for name in ("new", "empty", "own", "other"):
        refuse_foreign(tmp_path / name, "study", "mark", "result-*")  # nothing is there yet
    for name in ("empty", "own", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty" / ".hidden").write_text("")
    (tmp_path / "own" / "notes").write_text("")
    (tmp_path / "own" / "result-1").write_text("")
    (tmp_path / "other" / "no\nte").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("empty", "own"):
        refuse_foreign(tmp_path / name, "study", "mark", "result-*")
    with pytest.raises(InputError, match=r"other: holds no\\nte, and is no study; choose another"):
        refuse_foreign(tmp_path / "other", "study", "mark", "result-*")
    for path in (tmp_path / "dangling", tmp_path / "own" / "notes"):
        with pytest.raises(InputError, match="is no folder; choose another name for the study"):
            refuse_foreign(path, "study", "mark", "result-*")


def test_folders_made_for_a_file_vanish_with_it(tmp_path):
    def fail(path):
        with create_atomically(path) as part:
            part.write_text("half")
            raise KeyError

    (tmp_path / "old").mkdir()
    for name in ("new/er/file", "old/file"):
        with pytest.raises(KeyError):
            fail(tmp_path / name)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["old"]


def test_a_folder_is_for_one_process_at_a_time(tmp_path):
    with locked(tmp_path / "x"):
        second = locked(tmp_path / "x")
        with pytest.raises(InputError, match="x: another process is at work here"):
            second.__enter__()
        (tmp_path / "x" / "result").write_text("")
    with locked(tmp_path / "x") as check:
        check()
        (tmp_path / "x").rename(tmp_path / "y")
        with pytest.raises(InputError, match="x: has been deleted or moved"):
            check()


def test_the_cache_is_never_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SPACETIME_EN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
    assert cache_folder() == tmp_path / ".cache" / "spacetime-en"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(cache_folder()) == "/x/spacetime-en"
    monkeypatch.setenv("SPACETIME_EN_CACHE", "/y")
    assert str(cache_folder()) == "/y"
