"""The present clients, connected or with open sessions, for metrics and the page. No I/O, no clock, no torch.

Names come from the network, so at most `MAX_SHOWN` clients are shown; departed clients are not. Changes nothing.
"""

import math
from dataclasses import dataclass, field

from verify_node.clients.client import Client, Peer
from verify_node.core.core import VerifyCore
from verify_node.session.session import Session

MAX_SHOWN = 256
"""Most clients that are shown: those with sessions first, then by time of connection."""


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
    def may_draft(self) -> int:
        """Total tokens that the client's next drafts may have."""
        return sum(session.drafts.may_draft for session in self.unfinished)

    @property
    def moved_at(self) -> float | None:
        """Time of the latest progress of an unfinished session; None without any."""
        return max((session.moved_at for session in self.unfinished), default=None)

    @property
    def log_utility(self) -> float:
        """The client's term of the utility: weight x ln(goodput)."""
        return self.client.weight * math.log(self.client.goodput.value)


def present_clients(core: VerifyCore) -> list[Present]:
    """Returns all present clients, in order of connection; `shown` bounds their number."""
    found: dict[str, Present] = {}
    for peer in core.peers.values():
        found.setdefault(peer.client.name, Present(peer.client)).peers.append(peer)
    for session in core.sessions.values():
        found.setdefault(session.client.name, Present(session.client)).sessions.append(session)
    return list(found.values())


def shown(present: list[Present]) -> list[Present]:
    """Returns at most MAX_SHOWN clients, those with open sessions first."""
    return sorted(present, key=lambda one: not one.sessions)[:MAX_SHOWN]


def log_utility(present: list[Present]) -> float:
    """Returns the utility that is maximised, summed over clients with an unfinished session."""
    return sum(one.log_utility for one in present if one.unfinished)
