"""The process's limit on open files and sockets, and how many more it may open."""

import errno
import resource
from pathlib import Path

from goodspeed.errors import ConfigError

OWN = Path("/proc/self/fd")

LEAST = 64
"""Lowest `ulimit -n` at which a daemon starts; a daemon uses 20 to 30 descriptors before its first connection."""

ASSUMED = 32
"""Assumed number of open descriptors if the system does not report it."""


def limit() -> int | None:
    """Returns the limit on descriptors that this process has open at once; None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def num_free() -> int | None:
    """Returns how many more descriptors this process may open; None: no limit."""
    most = limit()
    if most is None:
        return None
    try:
        return max(0, most - sum(1 for _ in OWN.iterdir()))
    except OSError as error:  # no descriptor remains to list the folder with, or it does not exist
        return 0 if error.errno == errno.EMFILE else max(0, most - ASSUMED)


def check_limit() -> None:
    """Raises ConfigError if the limit is too low for a daemon."""
    most = limit()
    if most is not None and most < LEAST:
        raise ConfigError(
            f"this process may open only {most} files and sockets, too few for a node; "
            f"allow at least {LEAST} (ulimit -n {LEAST}), and more for many connections"
        )
