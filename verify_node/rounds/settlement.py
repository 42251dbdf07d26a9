"""What a finished round does to its sessions: tokens committed, estimates moved. No I/O, no clock, no torch."""

from collections.abc import Mapping, Sequence

from goodspeed.engine.paged.pages import PagePool
from verify_node.packing.round import Entry, Round
from verify_node.rounds.outcomes import Moved, Outcome
from verify_node.rounds.scheduler import Scheduler
from verify_node.session.phase import Phase
from verify_node.session.session import Session


def commit(session: Session, entry: Entry, outcome: Outcome, pool: PagePool) -> Moved:
    """Adds the decided tokens to the session's text, and frees the memory of rejected ones, or of all at its end.

    Full pages of the text are published: nothing that was only drafted is among them. At the end of a text that shares
    with no other they are of no more use.
    """
    base_len = len(session.tokens)
    taken = session.commit(outcome.tokens, outcome.logprobs)
    session.must_follow(outcome.forced)
    pool.truncate(session.session_id, min(entry.base_len + outcome.num_accepted, len(session.tokens)))
    publish(session, pool)
    if session.finished:
        if not session.shares:
            pool.withdraw(session.session_id)
        pool.free(session.session_id)
    return Moved(session, entry, outcome, base_len, taken)


def publish(session: Session, pool: PagePool) -> None:
    """Those who share with the session find what it has read so far; its text must not be ahead of its memory."""
    pool.publish(session.session_id, session.prefix_scope, session.tokens)


def observe(done: Round, moved: Sequence[Moved], scheduler: Scheduler) -> None:
    """Observes acceptance and goodput (Eq. 3, 4), calibrations, and what waiting for drafts brings."""
    scheduler.observe(done.number, [move.observation for move in moved])
    for move in moved:
        for source, codes, num_accepted in move.claims:
            move.session.client.calibration(source).observe(codes, num_accepted)
        if move.entry.answered is not None:
            move.session.client.observe_answer(move.outcome.num_accepted, in_time=move.entry.answered)
        move.session.observe_model(move.outcome.num_accepted, move.entry.model_drafted)


def active(sessions: Mapping[bytes, Session]) -> list[Session]:
    """The sessions that go on and have had their first token."""
    return [session for session in sessions.values() if session.phase is Phase.RUNNING]
