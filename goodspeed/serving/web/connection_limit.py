"""The number of HTTP connections that a process can serve, and the one to close when a newcomer exceeds it."""

import ipaddress
import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from goodspeed.errors import ConfigError
from goodspeed.wire import descriptors

logger = logging.getLogger("goodspeed.http")

C = TypeVar("C", bound=Hashable)

MAX_CONNECTIONS = 512
"""Well below the 1,024 descriptors that a process usually may have."""

MIN_CONNECTIONS = 4
"""HTTP is refused with fewer."""

KEPT = 16
"""Descriptors that stay free for the wire and for files, or a quarter of those that are free, if that is more."""

RESERVED = 8
"""One connection in this many is closed to a host that holds all the others."""


@dataclass(slots=True)
class _Connection:
    host: str
    idle_since: float | None  # None: busy


class ConnectionLimit(Generic[C]):
    """Admits connections up to a limit, in total and per host.

    A connection is *busy* while a complete, authorised request is being answered and the client reads the answer. All
    others are idle: no request yet, half a request, a request without a key, an answer that the client does not read.
    A newcomer beyond the limit replaces the connection that has been idle for longest, among those of the host with
    most connections (in a tie between hosts, the longest idle of all). Hosts with no idle connection do not count, so
    the newcomer of a host that has one closes connections only of hosts with no fewer than its own. The newcomer itself
    is refused only where no other connection is idle. Busy connections are never closed.
    """

    def __init__(self, max_open: int) -> None:
        self.max_open = max_open
        self.max_per_host = max(1, max_open - max(1, max_open // RESERVED))
        self._connections: dict[C, _Connection] = {}
        self._hosts: dict[str, set[C]] = {}

    @property
    def num_open(self) -> int:
        return len(self._connections)

    def admit(self, who: C, host: str, now: float) -> C | None:
        """Returns the connection to close: None where there is room, `who` where no other connection is idle.

        That connection is already removed.
        """
        self._connections[who] = _Connection(host, now)
        self._hosts.setdefault(host, set()).add(who)
        if len(self._hosts[host]) > self.max_per_host:
            victim = self._idlest([host], who)
        elif self.num_open > self.max_open:
            victim = self._idlest(self._largest(who), who)
        else:
            return None
        self.remove(victim)
        return victim

    def mark_busy(self, who: C) -> None:
        """Marks a connection busy; does nothing for one that was removed."""
        if who in self._connections:
            self._connections[who].idle_since = None

    def mark_idle(self, who: C, since: float) -> None:
        """Marks a busy connection idle since that time; does nothing for one that is idle or was removed."""
        if who in self._connections and self._connections[who].idle_since is None:
            self._connections[who].idle_since = since

    def remove(self, who: C) -> None:
        """Forgets a connection; does nothing for one that was removed."""
        connection = self._connections.pop(who, None)
        if connection is not None:
            self._hosts[connection.host].discard(who)
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def _largest(self, newcomer: C) -> list[str]:
        """Returns the hosts with most connections, among those with an idle one besides the newcomer."""
        able = [host for host in self._hosts if self._idle_since(host, newcomer)]
        most = max((len(self._hosts[host]) for host in able), default=0)
        return [host for host in able if len(self._hosts[host]) == most]

    def _idlest(self, hosts: Iterable[str], newcomer: C) -> C:
        """Returns the connection of these hosts that is idle for longest; the newcomer where all others are busy."""
        idle = {who: since for host in hosts for who, since in self._idle_since(host, newcomer).items()}
        return min(idle, key=lambda who: idle[who], default=newcomer)

    def _idle_since(self, host: str, newcomer: C) -> dict[C, float]:
        """Returns one host's idle connections, without the newcomer, and since when each is idle."""
        since = {who: self._connections[who].idle_since for who in self._hosts[host] if who != newcomer}
        return {who: moment for who, moment in since.items() if moment is not None}


def host_of(address: str) -> str:
    """Returns what connections are counted by: an IPv4 address, the /64 network of an IPv6 one, '' for none."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False))


def possible_connections(wanted: int) -> int:
    """Returns how many HTTP connections are possible: `wanted`, or fewer where descriptors are scarce.

    Raises ConfigError where fewer than MIN_CONNECTIONS are.
    """
    possible = _possible(wanted)
    if possible < wanted:
        logger.warning(
            "fewer HTTP connections than usual are served; allow this process more descriptors (ulimit -n)",
            extra={"possible": possible, "wanted": wanted},
        )
    return possible


def check_capacity(wanted: int = MAX_CONNECTIONS) -> None:
    """Raises the ConfigError that `possible_connections` would raise now, before anything is loaded."""
    _possible(wanted)


def _possible(wanted: int) -> int:
    free = descriptors.num_free()
    if free is None:
        return wanted
    possible = min(wanted, free - max(KEPT, free // 4))
    if possible < min(wanted, MIN_CONNECTIONS):
        raise ConfigError(
            f"--http: only {free} more files and sockets may be open in this process, too few to serve HTTP; allow it "
            f"at least {KEPT + MIN_CONNECTIONS - free} more (ulimit -n), or {KEPT + wanted} for {wanted} connections"
        )
    return possible
