"""Who is heard: what is done with a peer's message before its contents concern a session. No I/O, no clock.

The limits on senders come first, then keys, the other replicas, the node's own stop, and the Hello that everybody
begins with.
"""

from goodspeed.wire.handshake import Hello
from goodspeed.wire.messages import OpenSession, UpMessage
from verify_node.core.fleet import FleetReplies
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.session.checks import HELLO_FIRST, STOPPING
from verify_node.session.client import Peer


class Reception:
    """Lets messages of peers in, or says why not."""

    def __init__(self, register: Register, replies: Replies, fleet_replies: FleetReplies) -> None:
        self._register = register
        self._replies = replies
        self._fleet_replies = fleet_replies

    def receive(
        self, peer_id: bytes, message: UpMessage, now: float, principal: str | None, *, draining: bool
    ) -> Peer | list[Send]:
        """The peer whose message is to be handled; or what is sent, when there is nothing more to do about it.

        principal: the key that the sender proved to have, where there are keys. draining: the node stops.
        """
        num_tokens = len(message.prompt) + len(message.committed) if isinstance(message, OpenSession) else 0
        if (instead := self._replies.listen(peer_id, now, principal, num_tokens)) is not None:
            return instead
        if refused := self._register.check(peer_id, message, principal, now):
            name = message.name if isinstance(message, Hello) else ""
            return self._replies.refuse(peer_id, refused, now, principal=principal, client=name)
        peer = self._register.peers.get(peer_id)
        if isinstance(message, OpenSession) and peer is not None:
            sent_on = self._fleet_replies.open_elsewhere(peer, message, now, draining=draining)
            if sent_on:
                return sent_on
        if draining and isinstance(message, Hello | OpenSession):
            about = message if isinstance(message, OpenSession) else None
            return self._replies.refuse(peer_id, STOPPING, now, principal=principal, about=about)
        if isinstance(message, Hello):
            return self._greet(peer_id, message, now, principal)
        if peer is None:
            return self._replies.refuse(peer_id, HELLO_FIRST, now, principal=principal)
        peer.heard(now)
        return peer

    def _greet(self, peer_id: bytes, hello: Hello, now: float, principal: str | None) -> list[Send]:
        refused = self._register.hello(peer_id, hello, now, principal)
        if refused:
            return self._replies.refuse(peer_id, refused, now, principal=principal, client=hello.name)
        return [Send(peer_id, self._register.welcome_of(peer_id)), *self._fleet_replies.tell(peer_id)]
