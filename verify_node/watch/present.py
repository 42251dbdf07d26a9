"""Who is there now: clients that are connected or have open sessions, for those who watch. No I/O, no clock, no torch.

Names come from the network, so no more than `MAX_SHOWN` are ever told apart; whoever has left is not among them.
Changes nothing, and knows nothing about how it is shown.
"""

import math
from dataclasses import dataclass, field

from verify_node.core.core import VerifyCore
from verify_node.session.session import Client, Peer, Session

MAX_SHOWN = 256
"""Clients shown at most: those with sessions first, and of equals those that came first."""


@dataclass(slots=True)
class Present:
    """One client with its connections and its open sessions."""

    client: Client
    peers: list[Peer] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    @property
    def unfinished(self) -> list[Session]:
        return [session for session in self.sessions if not session.finished]

    @property
    def assigned(self) -> int:
        """Tokens that its next drafts may have together."""
        return sum(session.assigned or 0 for session in self.unfinished)

    @property
    def moved_at(self) -> float | None:
        """When one of its unfinished sessions last moved; None without any."""
        return max((session.moved_at for session in self.unfinished), default=None)

    @property
    def log_utility(self) -> float:
        """Its term of the utility: weight x ln(goodput)."""
        return self.client.weight * math.log(self.client.goodput.value)


def present_clients(core: VerifyCore) -> list[Present]:
    """All of them, in order of connection; see `shown` for a bounded number."""
    found: dict[str, Present] = {}
    for peer in core.peers.values():
        found.setdefault(peer.client.name, Present(peer.client)).peers.append(peer)
    for session in core.sessions.values():
        found.setdefault(session.client.name, Present(session.client)).sessions.append(session)
    return list(found.values())


def shown(present: list[Present]) -> list[Present]:
    """At most MAX_SHOWN, those with open sessions first."""
    return sorted(present, key=lambda one: not one.sessions)[:MAX_SHOWN]


def log_utility(present: list[Present]) -> float:
    """The sum that is maximised: over clients with a generation that goes on."""
    return sum(one.log_utility for one in present if one.unfinished)


def num_running(core: VerifyCore) -> int:
    """Open, unfinished sessions that take part in the newest round; the other unfinished ones wait."""
    return sum(not session.finished and core.register.has(session) for session in core.newest)
