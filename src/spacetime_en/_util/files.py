"""Write files and folders atomically, and by one process at a time.

A file or folder is written in a hidden folder next to its target and renamed when complete:
``.spacetime-en-TARGET-HOST-PID-TOKEN``. The writing process holds a lock; a hidden folder without
one was left by a killed process, and is deleted the next time something is written next to it.
Those of other machines are never deleted: their locks may not be visible here.
"""

import errno
import fnmatch
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from spacetime_en._util.errors import InputError, printable

_MARK = ".spacetime-en"
_NAMED = re.compile(rf"{_MARK}-([0-9a-f]{{8}})-(.*)-(\d+)-[0-9a-f]{{8}}")
# How libraries not written in Python report an operating-system error.
_OS_ERROR = re.compile(r"(?:os error |errno ?= ?)(\d+)")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary path, then rename what it wrote to `path`.

    An interruption at any moment leaves the old file or the new one.
    """
    with _beside(path) as temporary:
        write(temporary)
        _finish(temporary)
        os.replace(temporary, path)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8, like :func:`write_atomically`."""
    write_atomically(path, lambda temporary: temporary.write_text(text, "utf-8"))


@contextmanager
def create_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `target`, a file or a folder, if no error occurs.

    An existing `target`, or one being written by another process, is never overwritten: an error.
    """
    refuse_existing(target)
    with _new_folders(target.parent):
        _check_unwritten(target)
        with _beside(target) as temporary:
            yield temporary
            try:
                if temporary.is_dir():
                    os.rename(temporary, target)
                else:
                    _finish(temporary)
                    _rename_new(temporary, target)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise InputError(
                        f"{target}: was written by another process meanwhile, and is left as it is."
                    ) from None
                raise


def replace_folder(
    target: Path, write: Callable[[Path], object], is_current: Callable[[], bool]
) -> None:
    """Let `write` create a folder, which replaces `target` when it is complete.

    Several processes may do so at once. If another process has already put an equivalent folder
    there, by `is_current`, it is left as it is.
    """
    with _beside(target) as temporary:
        write(temporary)
        while True:
            try:
                os.rename(temporary, target)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            if is_current():
                return
            with suppress(FileNotFoundError):  # (another process has moved it)
                os.rename(target, temporary.with_name(f"old-{secrets.token_hex(4)}"))


@contextmanager
def _new_folders(path: Path) -> Iterator[None]:
    """Create a folder and its parents; on an error, those that are new and empty are removed."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    make_folder(path)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # (another process has written there)
            for folder in new:
                folder.rmdir()
        raise


def _check_unwritten(target: Path) -> None:
    """Raise if another process is writing a target."""
    _sweep(target.parent)
    for writing in filter(None, map(_NAMED.fullmatch, os.listdir(target.parent))):
        target_hash, host, pid = writing.groups()
        if target_hash == _hash(target):
            raise InputError(
                f"{target}: another process (number {pid} on {host}) is writing it; wait for it, "
                f"or, if that process has ended, delete {target.parent / writing[0]}."
            )


def inside(folder: Path, path: Path) -> Path:
    """Return `path`, or raise if it is a link out of `folder`, which may come from anyone."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise InputError(
            f"{path}: is a link out of {folder}, and not followed; put there what it leads to, or "
            "name that itself."
        )
    return path


def refuse_existing(target: Path) -> None:
    """Refuse to overwrite a file or folder of the user."""
    if os.path.lexists(target):
        raise InputError(f"{target}: exists already; choose another name or delete it.")


def refuse_foreign(folder: Path, what: str, *marks: str) -> None:
    """Refuse to write to a folder that is neither empty nor a `what`.

    Args:
        folder: the folder, which need not exist.
        what: such as "run".
        marks: patterns for file names, any of which identifies a `what`.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; choose another name for the {what}.")
    others = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if others and not any(fnmatch.filter(others, mark) for mark in marks):
        raise InputError(
            f"{folder}: holds {printable(others[0])}, and is no {what}; choose another folder for "
            f"the {what}."
        )


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(p for p in (path, *path.parents) if os.path.lexists(p))
        raise InputError(
            f"{path}: cannot be a folder, because {'it' if file == path else file} is a file; "
            "choose another name."
        ) from None


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Lock a folder, which is created if it does not exist, against other processes.

    Yields: a function that raises an error if the folder has been deleted or moved since.
    """
    is_new = not folder.exists()
    make_folder(folder)
    lock = folder / ".lock"
    try:
        held = FileLock(lock).acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"{folder}: another process is at work here; wait for it, or choose another folder."
        ) from None
    with held:
        ours = _identity(lock)

        def check() -> None:
            if _identity(lock) != ours:
                raise InputError(
                    f"{folder}: has been deleted or moved while it was being written to; nothing "
                    "more is kept there."
                )

        try:
            yield check
        finally:
            # Nothing was written: leave no empty folder behind.
            if is_new and folder.is_dir() and os.listdir(folder) == [lock.name]:
                lock.unlink()
                folder.rmdir()


# --- temporary folders ----------------------------------------------------------------------------


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield a path in a temporary hidden folder next to `target`, to write to.

    Errors of the operating system name the target.
    """
    parent = target.parent
    _sweep(parent)
    name = f"{_MARK}-{_hash(target)}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    folder = parent / name
    try:
        # Locked first, so that the folder never exists unlocked.
        with FileLock(_lock_file(folder)):
            try:
                folder.mkdir()
                yield folder / target.name
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                _lock_file(folder).unlink(missing_ok=True)
    except InputError:
        raise
    except Exception as error:
        if match := _OS_ERROR.search(str(error)):
            code = int(match[1])
            raise OSError(code, os.strerror(code), str(target)) from error
        if isinstance(error, OSError) and error.errno is not None:
            ours = error.filename is None or name in os.fsdecode(error.filename)
            at = str(target) if ours else error.filename
            raise OSError(error.errno, error.strerror, at) from error  # (without a second name)
        raise


def _hash(target: Path) -> str:
    """A hash of the name, which itself may be as long as the file system allows."""
    return f"{zlib.crc32(os.fsencode(target.name)):08x}"


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _sweep(parent: Path) -> None:
    """Delete the temporary folders of this machine's killed processes."""
    for name in {entry.removesuffix(".lock") for entry in os.listdir(parent)}:
        match, folder = _NAMED.fullmatch(name), parent / name
        if match is None or match[2] != socket.gethostname():
            continue
        if not folder.exists() and process_exists(int(match[3])):
            continue  # about to be created
        lock = _lock_file(folder)
        # (Errors: it is in use, or not ours to delete.)
        with suppress(Timeout, OSError), FileLock(lock).acquire(blocking=False):
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def process_exists(pid: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _finish(file: Path) -> None:
    """Flush to disk, with the usual permissions (safetensors lets only the owner read)."""
    umask = os.umask(0)
    os.umask(umask)
    file.chmod(0o666 & ~umask)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())  # or a crash of the machine may leave an empty file


def _rename_new(file: Path, target: Path) -> None:
    """Rename without overwriting a file that was created in the meantime."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.replace(file, target)


def cache_folder() -> Path:
    """The folder of simulated tasks: $SPACETIME_EN_CACHE, or in the user's cache folder."""
    # (Variables set to nothing count as unset; otherwise the working directory would be the cache.)
    named = os.environ.get("SPACETIME_EN_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spacetime-en"
