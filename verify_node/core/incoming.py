"""What a draft or an acknowledgement does to its session, and what is answered at once. No I/O, no clock, no torch.

The answer is nothing, a refusal, or a verdict again, for one that got lost.
"""

from dataclasses import dataclass
from typing import TypeAlias

from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Draft, Verdict
from verify_node.session.checks import NOT_ACKNOWLEDGED, Rejection, check_ack, check_draft
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


def take_ack(session: Session, ack: Ack, round_s: float, now: float) -> Answer:
    """Takes the draft node's position. An Ack that repeats the last one asks for everything after it again."""
    if refused := check_ack(ack, session):
        return refused
    if ack.base_len > session.acked:
        session.acknowledge_only(ack.base_len, session.window(round_s), now)
        return repeat(session, ack.base_len) if session.finished else None
    lacking = ack.base_len < len(session.tokens) or session.finished
    return repeat(session, ack.base_len) if lacking else None


def take_draft(session: Session, draft: Draft, welcome: Welcome, round_s: float, now: float) -> Answer:
    """Takes the draft node's position, and what it drafted beyond. Nothing answers it."""
    if refused := check_draft(draft, session, welcome.vocab_size):
        return refused
    if draft.base_len > session.acked:
        session.acknowledge_only(draft.base_len, session.window(round_s), now)
    session.take_draft(draft, now)
    return None


def repeat(session: Session, base_len: int) -> Answer:
    """The session's unacknowledged tokens again; a session that asked for them too often is dropped."""
    verdict = session.repeat(base_len)
    if verdict is None:
        return None
    return Drop(NOT_ACKNOWLEDGED) if session.num_repeats > MAX_REPEATS else Repeat(verdict)
