"""Limits a process's HTTP connections, and chooses the connection to close for a newcomer."""

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
"""Default limit, well below the usual limit of 1,024 descriptors."""

MIN_CONNECTIONS = 4
"""Fewest possible connections with which HTTP is served."""

KEPT = 16
"""Descriptors reserved for the wire and files, or a quarter of the free descriptors if that is more."""

RESERVED = 8
"""One in this many connections is reserved for other hosts: a single host cannot take all."""


@dataclass(slots=True)
class _Connection:
    host: str
    idle_since: float | None  # None: busy


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
        self._connections: dict[C, _Connection] = {}
        self._hosts: dict[str, set[C]] = {}

    @property
    def num_open(self) -> int:
        return len(self._connections)

    def admit(self, who: C, host: str, now: float) -> C | None:
        """Registers a connection; returns the one to close, already removed.

        None if there is room; `who` if no other connection is idle.
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
        """Marks a connection busy; does nothing for a removed one."""
        if who in self._connections:
            self._connections[who].idle_since = None

    def mark_idle(self, who: C, since: float) -> None:
        """Marks a busy connection idle since this time; does nothing for an idle or removed one."""
        if who in self._connections and self._connections[who].idle_since is None:
            self._connections[who].idle_since = since

    def remove(self, who: C) -> None:
        """Removes a connection; does nothing for a removed one."""
        connection = self._connections.pop(who, None)
        if connection is not None:
            self._hosts[connection.host].discard(who)
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def _largest(self, newcomer: C) -> list[str]:
        """Returns the hosts with the most connections, among hosts with an idle one other than the newcomer."""
        able = [host for host in self._hosts if self._idle_since(host, newcomer)]
        most = max((len(self._hosts[host]) for host in able), default=0)
        return [host for host in able if len(self._hosts[host]) == most]

    def _idlest(self, hosts: Iterable[str], newcomer: C) -> C:
        """Returns these hosts' longest-idle connection; the newcomer if all others are busy."""
        idle = {who: since for host in hosts for who, since in self._idle_since(host, newcomer).items()}
        return min(idle, key=lambda who: idle[who], default=newcomer)

    def _idle_since(self, host: str, newcomer: C) -> dict[C, float]:
        """Returns a host's idle connections, except the newcomer, with the time at which each became idle."""
        since = {who: self._connections[who].idle_since for who in self._hosts[host] if who != newcomer}
        return {who: moment for who, moment in since.items() if moment is not None}


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
