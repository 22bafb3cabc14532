"""What this machine has: cores, memory, room on its disks."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_PLENTY = 1 << 62  # bytes, where nothing is known


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that can still be had, of the machine, the container, or what a process may take."""
    found = [_PLENTY, *_left_of_limit()]
    try:
        known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(known["MemAvailable"].split()[0]))
        limit = Path("/sys/fs/cgroup/memory.max").read_text()
        used = Path("/sys/fs/cgroup/memory.current").read_text()
        found.append(int(limit) - int(used))
    except (OSError, ValueError, KeyError):  # another system, or no limit
        pass
    return min(found)


def _left_of_limit() -> Iterator[int]:
    """What is left of the limit for this process (ulimit -v), if there is one."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield max(0, limit - pages * resource.getpagesize())
    except (ImportError, OSError):  # another system
        return


def free_room(folder: Path) -> int:
    """Bytes that can still be written to a folder, which need not be there yet."""
    try:
        there = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
        return shutil.disk_usage(there).free
    except OSError:
        return _PLENTY


def in_words(count: int) -> str:
    """A number of bytes for people."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min((len(str(count)) - 1) // 3, len(units) - 1)
    return f"{count / 1000**power:.3g} {units[power]}"
