"""Limits a process's HTTP connections, and chooses the connection to close for a newcomer."""

import ipaddress
import logging
from collections import Counter
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from goodspeed.errors import ConfigError
from goodspeed.wire import descriptors

logger = logging.getLogger("goodspeed.http")

MAX_CONNECTIONS = 512
"""Default limit, well below the usual limit of 1,024 descriptors."""

MIN_CONNECTIONS = 4
"""Fewest possible connections with which HTTP is served."""

KEPT = 16
"""Descriptors reserved for the wire and files, or a quarter of the free descriptors if that is more."""

RESERVED = 8
"""One in this many connections is reserved for other hosts: a single host cannot take all."""


class Occupant(Hashable, Protocol):
    """A connection."""

    def idle_since(self, now: float) -> float | None:
        """Returns the time since which it may be closed to make room; None while it is busy."""
        ...


C = TypeVar("C", bound=Occupant)


class ConnectionLimit(Generic[C]):
    """Admits connections up to a limit, in total and per host.

    A connection is *busy* while a complete, authorised request is being answered and the client reads the answer. All
    others are idle: no request yet, half a request, a request without a key, an answer that the client does not read.

    A newcomer beyond the limit replaces an idle connection of the host with the most connections, among hosts with an
    idle one: the connection that has been idle for longest (in a tie between hosts, the longest idle of all). So a host
    with an idle connection cannot displace hosts with fewer connections. The newcomer is refused only if no other
    connection is idle. Busy connections are never closed.
    """

    def __init__(self, max_open: int) -> None:
        self.max_open = max_open
        self.max_per_host = max(1, max_open - max(1, max_open // RESERVED))
        self._hosts: dict[C, str] = {}

    @property
    def num_open(self) -> int:
        return len(self._hosts)

    def admit(self, who: C, host: str, now: float) -> C | None:
        """Registers a connection; returns the one to close, already removed.

        None if there is room; `who` if no other connection is idle.
        """
        self._hosts[who] = host
        sizes = Counter(self._hosts.values())
        if sizes[host] <= self.max_per_host and self.num_open <= self.max_open:
            return None
        idle = {other: since for other in self._hosts if other != who and (since := other.idle_since(now)) is not None}
        if sizes[host] > self.max_per_host:
            able = {host}
        else:
            most = max((sizes[self._hosts[other]] for other in idle), default=0)
            able = {name for name in sizes if sizes[name] == most}
        victim = min((other for other in idle if self._hosts[other] in able), key=idle.__getitem__, default=who)
        self.remove(victim)
        return victim

    def remove(self, who: C) -> None:
        """Removes a connection; does nothing for a removed one."""
        self._hosts.pop(who, None)


def host_of(address: str) -> str:
    """Returns the host for counting connections: an IPv4 address, an IPv6 address's /64 network, or '' for none."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False))


def possible_connections(wanted: int) -> int:
    """Returns the possible number of HTTP connections: `wanted`, or fewer if descriptors are scarce.

    Raises ConfigError below MIN_CONNECTIONS.
    """
    possible = _possible(wanted)
    if possible < wanted:
        logger.warning(
            "serving fewer HTTP connections than usual; allow this process more descriptors (ulimit -n)",
            extra={"possible": possible, "wanted": wanted},
        )
    return possible


def check_capacity() -> None:
    """Raises the ConfigError of `possible_connections` early, before anything is loaded."""
    _possible(MAX_CONNECTIONS)


def _possible(wanted: int) -> int:
    free = descriptors.num_free()
    if free is None:
        return wanted
    possible = min(wanted, free - max(KEPT, free // 4))
    if possible < min(wanted, MIN_CONNECTIONS):
        raise ConfigError(
            f"--http: this process may open only {free} more files and sockets, too few to serve HTTP; allow "
            f"at least {KEPT + MIN_CONNECTIONS - free} more (ulimit -n), or {KEPT + wanted} for {wanted} connections"
        )
    return possible
