"""Makes the messages that concern the fleet: who is in it, and where a session goes on. It counts them.

Events in, messages out. No I/O, no clock. Which replica a session goes to is decided in `verify_node/fleet`.
"""

from collections.abc import Sequence

from goodspeed.fleet.replicas import Replica
from goodspeed.wire.messages import OpenSession, Redirect
from verify_node.core.counts import Counts
from verify_node.core.register import Register
from verify_node.core.replies import Send
from verify_node.fleet.redirecting import Redirecting
from verify_node.session.client import Peer
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


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
        return [Send(peer_id, news)] if news is not None else []

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
