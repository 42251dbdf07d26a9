"""What a draft or an acknowledgement does to its session, and what is answered at once. No I/O, no clock, no torch.

The answer is nothing (a draft waits for its round), a refusal, or a verdict again, for one that got lost. Knows nothing
about peers, other sessions or rounds.
"""

from dataclasses import dataclass
from typing import TypeAlias

from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Draft, Offer, Verdict
from verify_node.session.checks import NOT_ACKNOWLEDGED, Rejection, check_ack, check_ahead, check_draft, check_offer
from verify_node.session.session import Session


@dataclass(frozen=True, slots=True)
class Drop:
    """The session ends, and its draft node is told why."""

    why: Rejection


@dataclass(frozen=True, slots=True)
class Repeat:
    """A verdict goes out again."""

    verdict: Verdict


Answer: TypeAlias = Rejection | Drop | Repeat | None
"""What a message about a session calls for: a refusal, one of the above, or nothing."""

MAX_REPEATS = 100
"""Verdicts that are sent again without an acknowledgement of more. A draft node asks for one after 1, 2, 4 and then
every 8 s, with two messages at most: on a line that lets nothing through that is more than six minutes."""


def take_draft(session: Session, draft: Draft, welcome: Welcome, now: float) -> Answer:
    """A draft for the next round; one that comes again is answered as before."""
    if draft.round == session.last_round and (session.draft is None or session.draft.assumes):
        return repeat(session, session.acked if draft.assumes else draft.base_len)
    if session.draft is not None and draft.round == session.draft.round:
        return None
    if draft.assumes:
        return _take_ahead(session, draft, welcome, now)
    if refused := check_draft(draft, session, welcome.vocab_size):
        return refused
    session.take_draft(draft, now)
    return None


def _take_ahead(session: Session, draft: Draft, welcome: Welcome, now: float) -> Answer:
    """A draft that hopes for a verdict. Its base is no acknowledgement: it was sent before the verdict arrived."""
    if refused := check_ahead(draft, welcome):
        return refused
    session.take_ahead(draft, now)
    return None


def take_ack(session: Session, ack: Ack, round_s: float, now: float) -> Answer:
    """Takes the draft node's position. An Ack that repeats the last one asks for everything after it again."""
    if refused := check_ack(ack, session):
        return refused
    if ack.base_len > session.acked:
        session.acknowledge_only(ack.base_len, session.window(round_s), now)
        return repeat(session, ack.base_len) if session.finished else None
    lacking = ack.base_len < len(session.tokens) or session.finished
    return repeat(session, ack.base_len) if lacking else None


def take_offer(session: Session, offer: Offer, welcome: Welcome, round_s: float, now: float) -> Answer:
    """Takes the draft node's position, and what it expects to follow. Nothing answers it unless the text is finished.

    What a draft model offers unasked may cross the last verdict, and asks for nothing.
    """
    if refused := check_offer(offer, session, welcome.vocab_size):
        return refused
    if offer.base_len > session.acked:
        session.acknowledge_only(offer.base_len, session.window(round_s), now)
    session.take_offer(offer, now)
    return repeat(session, offer.base_len) if session.finished and offer.source == "ngram" else None


def repeat(session: Session, base_len: int) -> Answer:
    """The session's unacknowledged tokens again; a session that asked for them too often is dropped."""
    verdict = session.repeat(base_len)
    if verdict is None:
        return None
    return Drop(NOT_ACKNOWLEDGED) if session.num_repeats > MAX_REPEATS else Repeat(verdict)
