"""Writing files and folders: whole or not at all, and one process at a time.

What is being made stands in a hidden folder beside its target, until it is whole and gets its name:
``.spacetime-en-WHAT-HOST-PID-TOKEN``. Its maker holds a lock; what is found without one was left by
a process that was killed, and is swept when something is next written beside it. What another
machine made is never swept: its locks may not be seen here.
"""

import errno
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from spacetime_en._util.errors import InputError

_MARK = ".spacetime-en"
_NAMED = re.compile(rf"{_MARK}-([0-9a-f]{{8}})-(.*)-(\d+)-[0-9a-f]{{8}}")
# What libraries that are not written in Python make of an error of the operating system.
_OS_ERROR = re.compile(r"(?:os error |errno ?= ?)(\d+)")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary path, then rename what it wrote to `path`.

    An interruption at any moment leaves the old file or the new one.
    """
    with _beside(path) as temporary:
        write(temporary)
        _settle(temporary)
        os.replace(temporary, path)


@contextmanager
def new_whole(target: Path) -> Iterator[Path]:
    """A temporary path that becomes `target`, a file or a folder, if the block ends well.

    Refuses to begin if `target` exists or another process is making it, and never overwrites it.
    """
    refuse_existing(target)
    make_folder(target.parent)
    for name in _alive(target.parent):
        what, host, pid = _parts(name)
        if what == _what(target):
            raise InputError(
                f"{target}: another process (number {pid} on {host}) is making it; wait for it, "
                f"or, if that is no more, delete {target.parent / name}."
            )
    with _beside(target) as temporary:
        yield temporary
        try:
            if temporary.is_dir():
                os.rename(temporary, target)
            else:
                _settle(temporary)
                _rename_new(temporary, target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise InputError(
                    f"{target}: was made by another process in the meantime, and is left as it is."
                ) from None
            raise


def inside(folder: Path, path: Path) -> Path:
    """`path`, refused if a link leads from there out of `folder`, which somebody may have sent."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise InputError(
            f"{path}: is a link out of {folder}, and not followed; put there what it leads to, or "
            "name that itself."
        )
    return path


def refuse_existing(target: Path) -> None:
    """Nothing of the user's is overwritten."""
    if os.path.lexists(target):
        raise InputError(f"{target}: exists already; choose another name or delete it.")


def make_folder(path: Path) -> None:
    """Make a folder and those around it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(p for p in (path, *path.parents) if os.path.lexists(p))
        raise InputError(
            f"{path}: cannot be a folder, because {file} is a file; choose another name."
        ) from None


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Keep other processes from working in a folder, which is created if it does not exist.

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
            if (
                is_new and folder.is_dir() and os.listdir(folder) == [lock.name]
            ):  # nothing came of it
                lock.unlink()
                folder.rmdir()


# --- temporary folders ----------------------------------------------------------------------------


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A path for what will be `target`, in a hidden folder beside it that goes with the block.

    Errors of the operating system name the target.
    """
    parent = target.parent
    _sweep(parent)
    name = f"{_MARK}-{_what(target)}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    folder = parent / name
    try:
        # The lock comes first, so that there is no moment at which the folder is without it.
        with FileLock(_lock_of(folder)):
            try:
                folder.mkdir()
                yield folder / target.name
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                _lock_of(folder).unlink(missing_ok=True)
    except InputError:
        raise
    except Exception as error:
        if found := _OS_ERROR.search(str(error)):
            code = int(found[1])
            raise OSError(code, os.strerror(code), str(target)) from error
        if isinstance(error, OSError) and error.errno is not None:
            ours = error.filename is None or name in os.fsdecode(error.filename)
            error.filename = str(target) if ours else error.filename
            error.filename2 = None
        raise


def _what(target: Path) -> str:
    """A short word for a name, which may be as long as the file system allows."""
    return f"{zlib.crc32(os.fsencode(target.name)):08x}"


def _parts(name: str) -> tuple[str, str, int]:
    match = _NAMED.fullmatch(name)
    assert match is not None
    return match[1], match[2], int(match[3])


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _alive(parent: Path) -> list[str]:
    """The names of temporary folders whose makers are at work, as far as can be known."""
    _sweep(parent)
    return [name for name in os.listdir(parent) if _NAMED.fullmatch(name)]


def _sweep(parent: Path) -> None:
    """Delete what killed processes of this machine left."""
    for name in {entry.removesuffix(".lock") for entry in os.listdir(parent)}:
        if _NAMED.fullmatch(name) and _parts(name)[1] == socket.gethostname():
            _delete_if_left(parent / name)


def _delete_if_left(folder: Path) -> None:
    lock = _lock_of(folder)
    if not folder.exists() and process_exists(_parts(folder.name)[2]):
        return  # just about to be made
    try:
        with FileLock(lock).acquire(blocking=False):
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
    except (Timeout, OSError):
        return  # it is at work, or we may not touch it


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
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _settle(file: Path) -> None:
    """Readable as others are (safetensors makes files that only their owner reads), and on disk."""
    umask = os.umask(0)
    os.umask(umask)
    file.chmod(0o666 & ~umask)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())  # or a crash of the machine may leave a name without its bytes


def _rename_new(file: Path, target: Path) -> None:
    """Rename, but never onto a file that has come into being."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.replace(file, target)


def cache_folder() -> Path:
    """Where tasks are kept: $SPACETIME_EN_CACHE, or the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spacetime-en"
    return Path(os.environ.get("SPACETIME_EN_CACHE", default))
