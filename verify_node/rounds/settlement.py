"""What a finished round does to its sessions: tokens committed, estimates moved, the next lengths, a verdict for each.

In that order, as the core calls it. No I/O, no clock, no torch.
"""

from collections.abc import Mapping, Sequence

from goodspeed.engine.paged.pages import PagePool
from goodspeed.wire.messages import Verdict
from verify_node.packing.round import Entry, Round
from verify_node.rounds import late_drafts
from verify_node.rounds.choice import ALL
from verify_node.rounds.outcomes import Moved, Outcome
from verify_node.rounds.scheduler import Scheduler
from verify_node.session.session import Session


def commit(session: Session, entry: Entry, outcome: Outcome, pool: PagePool) -> Moved:
    """Adds the decided tokens to the session's text, and frees the memory of rejected ones, or of all at its end.

    Full pages of the text are published: nothing that was only drafted is among them. At the end of a text that shares
    with no other they are of no more use.
    """
    base_len, answered = len(session.tokens), session.draft
    taken = session.commit(outcome.tokens, outcome.logprobs)
    session.must_follow(outcome.forced)
    pool.truncate(session.session_id, min(entry.base_len + outcome.num_accepted, len(session.tokens)))
    publish(session, pool)
    if session.finished:
        if not session.shares:
            pool.withdraw(session.session_id)
        pool.free(session.session_id)
    return Moved(session, entry, outcome, base_len, taken, answered)


def publish(session: Session, pool: PagePool) -> None:
    """Those who share with the session find what it has read so far; its text must not be ahead of its memory."""
    pool.publish(session.session_id, session.prefix_scope, session.tokens)


def observe(
    done: Round, moved: Sequence[Moved], sessions: Mapping[bytes, Session], scheduler: Scheduler, pool: PagePool
) -> None:
    """Observes acceptance and goodput (Eq. 3, 4), and which drafting sessions had a draft ready for the round."""
    drafting = [session for session in sessions.values() if session.is_drafting]
    over_budget = [key for key in done.deferred if pool.length(key)]
    scheduler.observe_shares(drafting, {*done.verified, *over_budget})
    scheduler.observe(done.number, [move.observation for move in moved])
    for move in moved:
        for source, codes, num_accepted in move.claims:
            move.session.client.calibration(source).observe(codes, num_accepted)
        if move.entry.answered is not None:
            move.session.client.observe_answer(move.outcome.num_accepted, in_time=move.entry.answered)
        move.session.observe_model_offer(move.outcome.num_accepted, move.entry.model_offered)


def active(moved: Sequence[Moved], sessions: Mapping[bytes, Session]) -> list[Session]:
    """The sessions that go on and have had their first token."""
    told = {move.session.session_id for move in moved}
    return [
        session
        for session in sessions.values()
        if not session.finished and (session.assigned is not None or session.session_id in told)
    ]


def allocate(
    done: Round,
    moved: Sequence[Moved],
    going_on: Sequence[Session],
    scheduler: Scheduler,
    round_s: float,
    *,
    gives_lengths: bool = True,
) -> dict[bytes, int]:
    """How many tokens each session that moved may draft next, by session (Eq. 5, or the policy's own way).

    going_on: of `active`. Without gives_lengths all of them go on by themselves.
    """
    participants = [move.session for move in moved if not move.session.finished]
    if not gives_lengths:
        return scheduler.allocate_none(done.number, participants)
    return scheduler.allocate(done.number, going_on, participants, round_s)


def settle(
    move: Moved, next_length: int, round_s: float, now: float, least_odds: int = ALL, may_draft: int = 0
) -> Verdict:
    """Tells the session what was decided and assigned: its verdict, which awaits an answer from now on."""
    session = move.session
    dropped = session.expect(move.hope(round_s))
    verdict = move.verdict(next_length, dropped, least_odds, may_draft)
    is_warm = move.entry.draft_round is not None
    session.tell(verdict, now, late_drafts.late_at(session, now, is_warm=is_warm), session.window(round_s))
    return verdict
