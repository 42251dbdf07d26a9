"""Carries out what is decided on promises between two rounds; verdicts tell the draft nodes."""

from verify_node.core.counts import Counts, PromiseOutcome
from verify_node.core.fleet import FleetReplies
from verify_node.core.register import Register
from verify_node.core.replies import Replies
from verify_node.promises.promises import Promises
from verify_node.rounds.outcomes import Send
from verify_node.session.checks import NOT_PROMISED
from verify_node.session.session import Session


def admit(
    promises: Promises, register: Register, replies: Replies, counts: Counts, fleet_replies: FleetReplies, now: float
) -> list[Send]:
    """Carries out what is decided between two rounds, and makes the messages to those who are sent on or refused.

    A text that begins and is declined goes to a replica that would promise it, if there is one. One that is under way
    goes on as well as it can, though it asked to be refused.
    """
    register.free_released()  # what is cached of a text says how much of it is left to read
    _lose(promises.lapse(register.sessions, now))
    sends: list[Send] = []
    for session, promised in promises.decide(register.sessions, now):
        begins = not session.opened.committed
        sent_on: list[Send] = []
        if begins and not promised and session.promised is None:
            sent_on = fleet_replies.promise_elsewhere(session, now)
        sends += sent_on or _carry_out(session, register, replies, counts, now, promised=promised)
        promises.answered(session)
    return sends


def withdraw(promises: Promises, register: Register, replies: Replies, counts: Counts, now: float) -> list[Send]:
    """Ends all promises and declines whoever asked, and makes the messages to those who are refused."""
    lost, asking = promises.withdraw(register.sessions)
    _lose(lost)
    sends: list[Send] = []
    for session in asking:
        sends += _carry_out(session, register, replies, counts, now, promised=False)
    return sends


def _lose(sessions: list[Session]) -> None:
    """Sessions have their promise no longer."""
    for session in sessions:
        session.admit(promised=False)


def _carry_out(
    session: Session, register: Register, replies: Replies, counts: Counts, now: float, *, promised: bool
) -> list[Send]:
    """A session is served as it was decided, or refused as it asked to be."""
    begins = not session.opened.committed
    is_refused = begins and not promised and session.opened.otherwise == "refuse"
    if begins and session.ledger is not None and (session.promised is None or promised > session.promised):
        counts.decided(session.ledger, _outcome(session, promised=promised, refused=is_refused))
    session.admit(promised=promised)
    if not is_refused:
        return []
    register.drop(session)
    return replies.refuse(session.peer_id, NOT_PROMISED, now, about=session.opened)


def _outcome(session: Session, *, promised: bool, refused: bool) -> PromiseOutcome:
    """What is counted of a decision on a text that begins."""
    if promised:
        return "promised" if session.promised is None else "later"
    return "refused" if refused else "declined"
