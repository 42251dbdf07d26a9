"""Decides which sessions go on at another replica, and makes the messages that tell draft nodes of the fleet.

A session is sent on MAX_HOPS times at most before a replica gives it a token. No I/O, no clock, no torch.
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
from verify_node.session.client import Client, Peer
from verify_node.session.session import Session
from verify_node.slo.promises import Promises

TOLD_S = 10.0
"""Draft nodes are told at once who came, went or stops, and how much there is to do so often at most."""


class Redirecting:
    """The other replicas, and the sessions that are sent to them."""

    def __init__(self, own_load: Callable[[float], Load], page_size: int, target: str = "") -> None:
        """own_load: returns what this replica has to do at a time. target: the fingerprint of its target."""
        self._own_load = own_load
        self.target = target
        self._page_size = page_size
        self._own: Replica | None = None
        self._others: dict[str, Replica] = {}  # by name
        self._news: tuple[Sibling, ...] | None = None
        self._told_at = 0.0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica."""
        return not self._others

    @property
    def news(self) -> tuple[Sibling, ...] | None:
        """All replicas, as draft nodes are told of them; None where there is no fleet."""
        return self._news

    def know(self, own: str, replicas: Sequence[Replica], now: float) -> bool:
        """Takes the table of all replicas, this one by its name. Returns whether draft nodes are to be told of it."""
        self._own = next((one for one in replicas if one.name == own), None)
        self._others = {one.name: one for one in replicas if one.name != own} if self._own is not None else {}
        news = tuple(map(_sibling, replicas)) if self._own is not None else ()
        if self._news is None and not news:
            return False
        is_new = self._news is None or _members(news) != _members(self._news)
        if not is_new and (now - self._told_at < TOLD_S or news == self._news):
            return False
        self._news, self._told_at = news, now
        return True

    def on_opening(self, message: OpenSession, client: Client, now: float, *, reason: Reason) -> Redirect | None:
        """Where a session that is about to be opened goes instead; None: it is opened here."""
        num_tokens = len(message.prompt) + len(message.committed)
        pages = self._pages(len(message.prompt) + message.max_tokens)
        return self._sent_on(message, client, Ask(inf, num_tokens, None, pages), message.hops, now, reason)

    def on_deciding(self, session: Session, request: Ask, now: float) -> Redirect | None:
        """Where a session goes that is promised nothing here; None: it is not sent on."""
        return self._sent_on(session.opened, session.client, request, session.opened.hops, now, "slo")

    def on_leaving(self, session: Session, now: float) -> Redirect | None:
        """Where an open session goes when this replica stops; None: its draft node finds out for itself."""
        opened = session.opened
        has_moved = len(session.tokens) > len(opened.prompt) + len(opened.committed)
        request = Ask(inf, len(session.tokens), None, self._pages(session.limit))
        return self._sent_on(opened, session.client, request, 0 if has_moved else opened.hops, now, "draining")

    def _sent_on(
        self, opened: OpenSession, client: Client, request: Ask, hops: int, now: float, reason: Reason
    ) -> Redirect | None:
        if self._own is None or self.is_alone or hops >= MAX_HOPS:
            return None
        own = replace(self._own, load=self._own_load(now)) if reason == "load" else self._own
        found = elsewhere(own, list(self._others.values()), request, now, reason=reason, target=self.target)
        if found is None:
            return None
        if found.load is not None:  # else all who are sent on before the next report would go to the same one
            self._others[found.name] = replace(found, load=with_one_more(found.load, request, now))
        return Redirect(opened.session_id, opened.epoch, found.endpoint, found.public_key or "", hops + 1, reason)

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._page_size)


class FleetReplies:
    """Tells draft nodes of the other replicas, and sends sessions there."""

    def __init__(self, redirecting: Redirecting, register: Register, promises: Promises, counts: Counts) -> None:
        self._redirecting = redirecting
        self._register = register
        self._promises = promises
        self._counts = counts

    def know(self, own: str, replicas: Sequence[Replica], now: float) -> list[Send]:
        """Takes the table of the fleet's replicas, and tells all draft nodes if something is new."""
        is_new = self._redirecting.know(own, replicas, now)
        return [send for peer_id in self._register.peers for send in self.tell(peer_id)] if is_new else []

    def tell(self, peer_id: bytes) -> list[Send]:
        """Tells one draft node of the fleet, if there is one that it knows about."""
        news = self._redirecting.news
        return [Send(peer_id, Heartbeat(self._register.welcome.boot_id, news))] if news is not None else []

    def open_elsewhere(self, peer: Peer, message: OpenSession, now: float, *, draining: bool) -> list[Send]:
        """Sends a session that is about to be opened to another replica, if it is better off there."""
        if self._redirecting.is_alone or message.session_id in self._register.sessions:
            return []
        redirect = None
        if draining or len(self._register.sessions) >= self._register.max_sessions:
            redirect = self._redirecting.on_opening(message, peer.client, now, reason="draining")
        elif not message.committed and not (message.slo is not None and self._promises.is_on):  # that is decided later
            redirect = self._redirecting.on_opening(message, peer.client, now, reason="load")
        return self._sent_on(peer.peer_id, redirect)

    def promise_elsewhere(self, session: Session, now: float) -> list[Send]:
        """Sends a session that is promised nothing here to a replica that would promise it, and drops it."""
        request = self._promises.request(session, now)
        if request is None:
            return []
        if sends := self._sent_on(session.peer_id, self._redirecting.on_deciding(session, request, now)):
            self._register.drop(session)
        return sends

    def leave(self, now: float) -> list[Send]:
        """Sends all open sessions to other replicas, since this one stops."""
        sessions = self._register.sessions.values()
        return [
            send
            for session in sessions
            for send in self._sent_on(session.peer_id, self._redirecting.on_leaving(session, now))
        ]

    def _sent_on(self, peer_id: bytes, redirect: Redirect | None) -> list[Send]:
        if redirect is None:
            return []
        self._counts.redirects[redirect.reason] += 1
        return [Send(peer_id, redirect)]


def _sibling(replica: Replica) -> Sibling:
    load, key = replica.load, replica.public_key or ""
    if load is None:
        return Sibling(replica.endpoint, key)
    seconds = expected_s(load)
    known_s = min(round(seconds, 4), 1e6) if isfinite(seconds) else None
    return Sibling(replica.endpoint, key, load.target_fingerprint, load.is_draining, known_s)


def _members(news: Sequence[Sibling]) -> list[Sibling]:
    """All that has to be told at once."""
    return [replace(sibling, expected_s=None) for sibling in news]
