"""Carries out what is decided on promises between two rounds; verdicts tell the draft nodes."""

from collections.abc import Iterable

from verify_node.core.counts import Counts
from verify_node.core.fleet import FleetReplies
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.session.checks import NOT_PROMISED
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


def admit(
    promises: Promises, register: Register, replies: Replies, counts: Counts, fleet_replies: FleetReplies, now: float
) -> list[Send]:
    """Carries out what is decided between two rounds, and makes the messages to those who are sent on or refused.

    A text that begins and is declined goes to a replica that would promise it, if there is one. One that is under way
    goes on as well as it can, though it asked to be refused.
    """
    register.free_released()  # what is cached of a text says how much of it is left to read
    _lose(promises.lapse(now), register)
    sends: list[Send] = []
    for session_id, promised in promises.decide(register.sessions, now).items():
        session = register.sessions[session_id]
        sent_on: list[Send] = []
        if not session.opened.committed and not promised and session.promised is None:
            sent_on = fleet_replies.promise_elsewhere(session, now)
        sends += sent_on or _carry_out(session, register, replies, counts, now, promised=promised)
        promises.answered(session.deadline)
    return sends


def withdraw(promises: Promises, register: Register, replies: Replies, counts: Counts, now: float) -> list[Send]:
    """Ends all promises and declines whoever asked, and makes the messages to those who are refused."""
    lost, asking = promises.withdraw(register.sessions)
    _lose(lost, register)
    sends: list[Send] = []
    for session_id in asking:
        sends += _carry_out(register.sessions[session_id], register, replies, counts, now, promised=False)
    return sends


def _lose(session_ids: Iterable[bytes], register: Register) -> None:
    """Sessions have their promise no longer."""
    for session_id in session_ids:
        if (session := register.sessions.get(session_id)) is not None:
            session.admit(promised=False)


def _carry_out(
    session: Session, register: Register, replies: Replies, counts: Counts, now: float, *, promised: bool
) -> list[Send]:
    """A session is served as it was decided, or refused as it asked to be."""
    begins, before = not session.opened.committed, session.promised
    is_refused = begins and not promised and session.opened.otherwise == "refuse"
    if begins and session.deadline is not None and (before is None or promised > before):
        if promised:
            counts.decided(session.deadline, "promised" if before is None else "later")
        else:
            counts.decided(session.deadline, "refused" if is_refused else "declined")
    session.admit(promised=promised)
    if not is_refused:
        return []
    register.drop(session)
    return replies.refuse(session.peer_id, NOT_PROMISED, now, about=session.opened)
