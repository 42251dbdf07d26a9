"""Decides which sessions to redirect to another replica, and makes the messages that inform draft nodes of the fleet.

A session is redirected at most MAX_HOPS times before a replica gives it a token. No I/O, no clock, no torch.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite

from msgspec.structs import replace

from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.routing import Reason, elsewhere, expected_s, with_one_more
from goodspeed.slo.feasible import Ask
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Heartbeat, Sibling
from goodspeed.wire.messages import OpenSession, Redirect
from verify_node.core.counts import Counts
from verify_node.core.register import Register
from verify_node.core.replies import Send
from verify_node.session.client import Peer
from verify_node.session.session import Session
from verify_node.slo.promises import Promises

TOLD_S = 10.0
"""Least time between two reports of load to draft nodes; replicas that join, leave or drain are reported at once."""


class Fleet:
    """The other replicas: informs draft nodes of them, and redirects sessions to them."""

    def __init__(
        self,
        register: Register,
        promises: Promises,
        counts: Counts,
        load: Callable[[float], Load],
        page_size: int,
        target: str = "",
    ) -> None:
        """load: returns this replica's load at a given time. target: the fingerprint of this replica's target."""
        self.news: tuple[Sibling, ...] | None = None  # the latest report to draft nodes; None: no fleet yet
        self.target = target
        self._register, self._promises, self._counts = register, promises, counts
        self._load = load
        self._page_size = page_size
        self._own: Replica | None = None
        self._others: dict[str, Replica] = {}  # by name
        self._told_at = 0.0

    @property
    def is_alone(self) -> bool:
        """True if there is no other replica."""
        return not self._others

    def know(self, own: str, replicas: Sequence[Replica], now: float) -> list[Send]:
        """Takes the table of all replicas, including this one, named `own`. Informs all draft nodes of changes."""
        self._own = next((one for one in replicas if one.name == own), None)
        self._others = {one.name: one for one in replicas if one.name != own} if self._own is not None else {}
        news = tuple(map(_sibling, replicas)) if self._own is not None else ()
        if self.news is None and not news:
            return []
        is_new = self.news is None or _members(news) != _members(self.news)
        if not is_new and (now - self._told_at < TOLD_S or news == self.news):
            return []
        self.news, self._told_at = news, now
        return [send for peer_id in self._register.peers for send in self.tell(peer_id)]

    def tell(self, peer_id: bytes) -> list[Send]:
        """Sends one draft node the latest report on the fleet; nothing if there is none."""
        if self.news is None:
            return []
        return [Send(peer_id, Heartbeat(self._register.welcome.boot_id, self.news))]

    def open_elsewhere(self, peer: Peer, message: OpenSession, now: float, *, draining: bool) -> list[Send]:
        """Redirects a session that is about to be opened, if another replica serves it better."""
        if self.is_alone or message.session_id in self._register.sessions:
            return []
        reason: Reason
        if draining or len(self._register.sessions) >= self._register.max_sessions:
            reason = "draining"
        elif message.committed or (message.slo is not None and self._promises.is_on):  # decided later
            return []
        else:
            reason = "load"
        request = self._request(len(message.prompt) + len(message.committed), len(message.prompt) + message.max_tokens)
        return self._redirect(peer.peer_id, message, request, message.hops, now, reason)

    def promise_elsewhere(self, session: Session, now: float) -> list[Send]:
        """Redirects a session that is declined here to a replica that would promise its objectives, and drops it."""
        request, opened = self._promises.request(session, now), session.opened
        if request is None:
            return []
        sends = self._redirect(session.peer_id, opened, request, opened.hops, now, "slo")
        if sends:
            self._register.drop(session)
        return sends

    def leave(self, now: float) -> list[Send]:
        """Redirects all open sessions because this replica stops; without another replica, sends nothing."""
        sends = []
        for session in self._register.sessions.values():
            hops = session.opened.hops if len(session.tokens) == session.num_given else 0
            request = self._request(len(session.tokens), session.limit)
            sends += self._redirect(session.peer_id, session.opened, request, hops, now, "draining")
        return sends

    def _request(self, num_tokens: int, limit: int) -> Ask:
        """Describes a text of num_tokens tokens that may grow to `limit`, without objectives."""
        return Ask(inf, num_tokens, None, -(-limit // self._page_size))

    def _redirect(
        self,
        peer_id: bytes,
        opened: OpenSession,
        request: Ask,
        hops: int,
        now: float,
        reason: Reason,
    ) -> list[Send]:
        """Sends nothing if no other replica is better, or the session has used up its redirects."""
        if self._own is None or self.is_alone or hops >= MAX_HOPS:
            return []
        own = replace(self._own, load=self._load(now)) if reason == "load" else self._own
        found = elsewhere(own, list(self._others.values()), request, now, reason=reason, target=self.target)
        if found is None:
            return []
        if found.load is not None:  # else all sessions redirected before its next report would go there
            self._others[found.name] = replace(found, load=with_one_more(found.load, request, now))
        self._counts.redirects[reason] += 1
        redirect = Redirect(opened.session_id, opened.epoch, found.endpoint, found.public_key or "", hops + 1, reason)
        return [Send(peer_id, redirect)]


def _sibling(replica: Replica) -> Sibling:
    load, key = replica.load, replica.public_key or ""
    if load is None:
        return Sibling(replica.endpoint, key)
    seconds = expected_s(load)
    known_s = min(round(seconds, 4), 1e6) if isfinite(seconds) else None
    return Sibling(replica.endpoint, key, load.target_fingerprint, load.is_draining, known_s)


def _members(news: Sequence[Sibling]) -> list[Sibling]:
    """Returns the news without loads: changes of all other fields are reported at once."""
    return [replace(sibling, expected_s=None) for sibling in news]
