"""Memory of this machine or container. Imports no torch."""

import contextlib
import os
import re
from pathlib import Path

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with a container's memory limit on Linux (cgroup version 2, version 1)."""

MEMINFO = Path("/proc/meminfo")


def total_bytes() -> int:
    """Returns the memory of this machine, or the limit of this container if lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits()])


def available_bytes() -> int:
    """Returns the memory available to new processes without swapping, where Linux reports it; else all memory."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^MemAvailable: +(\d+) kB$", MEMINFO.read_text(encoding="ascii"), re.MULTILINE):
            return min(1024 * int(found[1]), total_bytes())
    return total_bytes()


def _cgroup_limits() -> list[int]:
    """Returns this container's memory limits in bytes; empty without a container, a limit ("max") or Linux."""
    limits = []
    for path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return [limit for limit in limits if limit > 0]
