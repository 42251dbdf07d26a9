"""Memory of this machine or container. Imports no torch."""

import contextlib
import os
import re
from pathlib import Path

CGROUPS, OLD_LIMIT = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux mounts control groups of version 2, each with its memory.max, and a container's limit of version 1."""

OWN_CGROUP = Path("/proc/self/cgroup")


def total_bytes() -> int:
    """Returns the memory of this machine, or the limit of this container if lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """Returns the memory limits, in bytes, of this process's control groups: of a container, or of a systemd unit.

    Empty without a limit ("max") or Linux.
    """
    limits, groups = [], [CGROUPS]
    with contextlib.suppress(OSError):
        if own := re.search(r"^0::/(.+)$", OWN_CGROUP.read_text(encoding="ascii"), re.MULTILINE):
            groups += [path for path in [CGROUPS / own[1], *(CGROUPS / own[1]).parents] if CGROUPS in path.parents]
    for path in [OLD_LIMIT, *(group / "memory.max" for group in groups)]:
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return [limit for limit in limits if limit > 0]
