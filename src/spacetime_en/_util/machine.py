"""The resources of this machine: cores, memory, disk space."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 1 << 62  # bytes


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Available bytes, within the limits of the machine, the container and the process."""
    limits = [_UNLIMITED, *_left_of_limit()]
    try:
        entries = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(1024 * int(entries["MemAvailable"].split()[0]))
        limit = Path("/sys/fs/cgroup/memory.max").read_text()
        used = Path("/sys/fs/cgroup/memory.current").read_text()
        limits.append(int(limit) - int(used))
    except (OSError, ValueError, KeyError):  # another system, or no limit
        pass
    return min(limits)


def _left_of_limit() -> Iterator[int]:
    """The rest of this process's memory limit (ulimit -v), if there is one."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield max(0, limit - pages * resource.getpagesize())
    except (ImportError, OSError):  # another system
        return


def free_room(folder: Path) -> int:
    """Bytes that can be written to a folder, which need not exist yet."""
    try:
        there = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
        return shutil.disk_usage(there).free
    except OSError:
        return _UNLIMITED


def in_words(count: int) -> str:
    """A number of bytes with a unit, such as 3.2 GB."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min((len(str(count)) - 1) // 3, len(units) - 1)
    return f"{count / 1000**power:.3g} {units[power]}"
