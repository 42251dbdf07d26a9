"""The number of files and sockets that this process may still open."""

import errno
import resource
from pathlib import Path

from goodspeed.errors import ConfigError

OWN = Path("/proc/self/fd")

LEAST = 64
"""The lowest `ulimit -n` with which a daemon starts; it uses 20 to 30 descriptors before its first connection."""

ASSUMED = 32
"""Number of open descriptors that is assumed where the system does not tell it."""


def limit() -> int | None:
    """Returns the most descriptors that this process may have open at once; None for no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def num_free() -> int | None:
    """Returns how many more descriptors may be opened; None for no limit."""
    most = limit()
    if most is None:
        return None
    try:
        return max(0, most - sum(1 for _ in OWN.iterdir()))
    except OSError as error:  # none is left to look with, or the system does not tell
        return 0 if error.errno == errno.EMFILE else max(0, most - ASSUMED)


def check_limit() -> None:
    """Raises ConfigError where the limit is too low for a daemon to start."""
    most = limit()
    if most is not None and most < LEAST:
        raise ConfigError(
            f"this process may have {most} files and sockets open at once, too few for a node; "
            f"allow at least {LEAST} (ulimit -n {LEAST}), and more for many connections"
        )
