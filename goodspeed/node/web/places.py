"""Who may hold one of the places that there are for connections, and who makes room when all are taken.

A pure object: who is connected, from which host, and since when without a request that is worth waiting for. Knows
nothing about sockets, clocks or HTTP.
"""

import ipaddress
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)

RESERVED = 8
"""One host may hold all places but one in so many."""


@dataclass(slots=True)
class _Place:
    host: str
    idle_since: float | None  # None: busy


class Places(Generic[C]):
    """A connection is *busy* while a complete request that was let in is being answered and the answer is being taken.

    All others are idle: nothing was asked, half a request, a request without a key, an answer that nobody takes. A
    newcomer that finds no place takes that of the connection which has been idle for longest, among those of the host
    with most connections (of several that have as many, the longest idle of all). Hosts of which all connections are
    busy do not count, so a host whose other connections are idle takes places only from hosts that have no fewer than
    it has. The newcomer itself is refused only where no other connection is idle. Busy connections are never sent away.
    """

    def __init__(self, num_places: int) -> None:
        self.num_places = num_places
        self.num_host_places = max(1, num_places - max(1, num_places // RESERVED))
        self._places: dict[C, _Place] = {}
        self._hosts: dict[str, set[C]] = {}

    @property
    def num_taken(self) -> int:
        return len(self._places)

    def enter(self, who: C, host: str, now: float) -> C | None:
        """Who has to go now: None where there is room, `who` itself where nobody may be sent away for it.

        Whoever has to go has left already.
        """
        self._places[who] = _Place(host, now)
        self._hosts.setdefault(host, set()).add(who)
        if len(self._hosts[host]) > self.num_host_places:
            victim = self._idlest([host], who)
        elif self.num_taken > self.num_places:
            victim = self._idlest(self._largest(who), who)
        else:
            return None
        self.leave(victim)
        return victim

    def busy(self, who: C) -> None:
        """A request that was let in is being answered. Nothing happens to those who have left."""
        if who in self._places:
            self._places[who].idle_since = None

    def idle(self, who: C, since: float) -> None:
        """Whoever is idle already stays so since when it was. Nothing happens to those who have left."""
        if who in self._places and self._places[who].idle_since is None:
            self._places[who].idle_since = since

    def leave(self, who: C) -> None:
        """Nothing happens to those who have left."""
        place = self._places.pop(who, None)
        if place is not None:
            self._hosts[place.host].discard(who)
            if not self._hosts[place.host]:
                del self._hosts[place.host]

    def _largest(self, newcomer: C) -> list[str]:
        """Among the hosts that have an idle connection besides the newcomer's: those that have most connections."""
        able = [host for host in self._hosts if self._idle_since(host, newcomer)]
        most = max((len(self._hosts[host]) for host in able), default=0)
        return [host for host in able if len(self._hosts[host]) == most]

    def _idlest(self, hosts: Iterable[str], newcomer: C) -> C:
        """The connection of these hosts that is idle for longest; the newcomer where all others there are busy."""
        idle = {who: since for host in hosts for who, since in self._idle_since(host, newcomer).items()}
        return min(idle, key=lambda who: idle[who], default=newcomer)

    def _idle_since(self, host: str, newcomer: C) -> dict[C, float]:
        """The idle connections of one host but the newcomer's."""
        since = {who: self._places[who].idle_since for who in self._hosts[host] if who != newcomer}
        return {who: moment for who, moment in since.items() if moment is not None}


def host_of(address: str) -> str:
    """The host under which connections are counted: an IPv4 address, the first half of an IPv6 one, '' for none."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False))
