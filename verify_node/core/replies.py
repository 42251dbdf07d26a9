"""Makes the messages to peers: refusals with their code, verdicts, and the final message to a barred sender.

Events in (a message arrived, it was refused), messages out. No I/O, no clock. The limits on senders are in
`rate_limit.py`.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from goodspeed.wire.messages import DownMessage, Refusal, Verdict
from verify_node.clients.client import Peer, sender_of
from verify_node.core.counts import Counts
from verify_node.core.rate_limit import RateLimiter, Treatment
from verify_node.core.refusals import (
    CHANGED,
    NOT_ACKNOWLEDGED,
    NOT_DRAWN,
    NOT_ENROLLED,
    AboutSession,
    refusal,
    wrong_proposal,
)
from verify_node.core.register import Register
from verify_node.scheduler.commit import Moved
from verify_node.session.session import Session


class Send(Struct, frozen=True):
    """The core's only kind of action: a message for a peer."""

    peer_id: bytes
    message: DownMessage


MAX_REPEATS = 100
"""Verdicts repeated without new acknowledgements before the session is dropped. A draft node asks for a repeat after 1,
2, 4 and then every 8 s, with at most two messages: more than six minutes on a dead line."""

FLOOD = "more messages than its sessions need"

KEEPS_OUT = frozenset({"not_enrolled", "wrong_name", "tokenizer", "version"})
"""Codes that refuse a draft node as a whole; the operator of this verify node sees the reason."""


class Replies:
    """Sends refusals and verdicts, and counts the refusals by code."""

    def __init__(self, register: Register, rate_limiter: RateLimiter, counts: Counts) -> None:
        self.rate_limiter = rate_limiter
        self.refusals: Counter[str] = Counter()  # by code
        self.num_unanswered = 0  # refusals counted but not sent
        self.num_ignored = 0  # messages of barred senders that reached this point
        self._register = register
        self._counts = counts

    @property
    def num_unheeded(self) -> int:
        """Counts messages that were refused or dropped unread; accepted messages never change it."""
        return self.refusals.total() + self.num_ignored

    def listen(
        self, peer_id: bytes, now: float, principal: str | None = None, num_tokens: int = 0
    ) -> list[Send] | None:
        """Counts a message of num_tokens tokens. Returns None to accept it, else the messages to send instead."""
        sender = sender_of(peer_id, principal)
        if sender in self.rate_limiter.barred:
            self.num_ignored += 1
            return []
        if self.rate_limiter.heard(sender, now, num_tokens):
            return self._bar(peer_id, sender, FLOOD, now, principal)
        return None

    def refuse(
        self,
        peer_id: bytes,
        refused: Refusal,
        now: float,
        *,
        principal: str | None = None,
        about: AboutSession | None = None,
        client: str = "",
    ) -> list[Send]:
        """Sends a refusal; after too many, only counts it; finally bars the sender.

        client: name given by a sender that is not admitted.
        """
        if about is not None:
            refused = replace(refused, session_id=about.session_id, epoch=about.epoch)
        self._note(client or self._name(peer_id), refused, now)
        sender = sender_of(peer_id, principal) if principal else self._sender(peer_id)
        match self.rate_limiter.refused(sender, refused.code, now):
            case Treatment.ANSWERED:
                return [Send(peer_id, refused)]
            case Treatment.COUNTED:
                self.num_unanswered += 1
                return []
            case Treatment.BARRED:
                return self._bar(
                    peer_id, sender, f"too many refused messages, the latest as {refused.code!r}", now, principal
                )

    def turned_away(self, key: str, now: float) -> None:
        """Records that a key that is not enrolled was denied a connection; there is no peer to reply to."""
        self._note("", refusal("not_enrolled", f"no file in the --enrolled folder has its key {key}", ""), now)

    def revoke(self, peers: Iterable[Peer], now: float) -> list[Send]:
        """Notifies peers whose key was removed or changed; does not count as an offence."""
        sends = []
        for peer in peers:
            refused = CHANGED if peer.principal in (self._register.enrolled or {}) else NOT_ENROLLED
            self._note(peer.client.name, refused, now)
            sends.append(Send(peer.peer_id, refused))
        return sends

    def give_up(self, session: Session, why: Refusal, now: float) -> list[Send]:
        self._register.sessions.drop(session)
        return self.refuse(session.peer_id, why, now, about=session.opened)

    def repeat(self, session: Session, base_len: int, now: float) -> list[Send]:
        """Repeats the unacknowledged tokens; drops a session after too many repeats.

        Sends nothing before the first verdict, nor if too much was repeated to the receiver lately.
        """
        sender = self._sender(session.peer_id)
        num_tokens = session.num_unacknowledged + len(session.prompt_logprobs or ())
        if session.last_verdict is None or not self.rate_limiter.repeats(sender, num_tokens):
            return []
        verdict = session.repeat(session.last_verdict, base_len)
        if session.num_repeats > MAX_REPEATS:
            return self.give_up(session, NOT_ACKNOWLEDGED, now)
        self._counts.num_repeated += 1
        return [Send(session.peer_id, verdict)]

    def disprove(self, moved: Iterable[Moved], now: float) -> list[Send]:
        """Refuses proposals that a round could not use, and once a client proven to draw from other distributions."""
        sends = []
        for move in moved:
            if move.session.client.observe_evidence(move.outcome.evidence):  # see `Session.verification`
                sends += self.refuse(move.session.peer_id, NOT_DRAWN, now, about=move.session.opened)
            if move.outcome.invalid:
                refused = wrong_proposal(move.outcome.invalid)
                sends += self.refuse(move.session.peer_id, refused, now, about=move.session.opened)
        return sends

    def tell(self, peer_id: bytes, verdict: Verdict) -> Send:
        """Makes the message with a round's verdict; the verdict earns its receiver the messages that answer it."""
        self.rate_limiter.earned(self._sender(peer_id))
        return Send(peer_id, verdict)

    def _note(self, client: str, refused: Refusal, now: float) -> None:
        self.refusals[refused.code] += 1
        why = refused.what if refused.code in KEEPS_OUT else ""
        self._register.client_events.refused(client, refused.code, now, why)

    def _bar(self, peer_id: bytes, sender: bytes, why: str, now: float, principal: str | None) -> list[Send]:
        """Bars the sender: ends its sessions, and sends one final message to each of its connections."""
        seconds = self.rate_limiter.bar(sender, now)
        what_to_do = f"correct this and reconnect after {seconds:.0f} s; messages before that are ignored"
        refused = refusal("barred", f"this draft node sent {why}", what_to_do)
        self.refusals[refused.code] += 1
        self._register.client_events.visit("barred", self._register.name_of(principal) or self._name(peer_id), why, now)
        receivers = dict.fromkeys([peer_id, *self._register.put_out(sender)])
        return [Send(receiver, refused) for receiver in receivers]

    def _sender(self, peer_id: bytes) -> bytes:
        """Returns the sender of a peer's messages. With keys, a peer that is gone may be named like another's key."""
        peer = self._register.peers.get(peer_id)
        if peer is not None:
            return peer.sender
        return sender_of(peer_id, None) if self._register.enrolled is None else b"gone " + peer_id

    def _name(self, peer_id: bytes) -> str:
        peer = self._register.peers.get(peer_id)
        return peer.client.name if peer else ""
