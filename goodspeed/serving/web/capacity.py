"""How many HTTP connections a process can serve with the descriptors that it may open."""

import logging

from goodspeed.errors import ConfigError
from goodspeed.wire import descriptors

logger = logging.getLogger("goodspeed.http")

MAX_CONNECTIONS = 512
"""Well below the 1,024 descriptors that a process usually may have."""

MIN_CONNECTIONS = 4
"""HTTP is refused with fewer."""

KEPT = 16
"""Descriptors that stay free for the wire and for files, or a quarter of those that are free, if that is more."""


def num_places(wanted: int) -> int:
    """Returns how many HTTP connections are possible: `wanted`, or fewer where descriptors are scarce.

    Raises ConfigError where fewer than MIN_CONNECTIONS are.
    """
    places = _places(wanted)
    if places < wanted:
        logger.warning(
            "fewer HTTP connections than usual are served; allow this process more descriptors (ulimit -n)",
            extra={"num_places": places, "wanted": wanted},
        )
    return places


def check(wanted: int = MAX_CONNECTIONS) -> None:
    """Raises the ConfigError that `num_places` would raise now, before anything is loaded."""
    _places(wanted)


def _places(wanted: int) -> int:
    free = descriptors.num_free()
    if free is None:
        return wanted
    places = min(wanted, free - max(KEPT, free // 4))
    if places < min(wanted, MIN_CONNECTIONS):
        raise ConfigError(
            f"--http: only {free} more files and sockets may be open in this process, too few to serve HTTP; allow it "
            f"at least {KEPT + MIN_CONNECTIONS - free} more (ulimit -n), or {KEPT + wanted} for {wanted} connections"
        )
    return places
