"""What a finished round does to its sessions: tokens committed, estimates moved, the next lengths, a verdict for each.

In that order, as the core calls it. No I/O, no clock, no torch.
"""

from collections.abc import Mapping, Sequence

from goodspeed.engine.pages import PagePool
from goodspeed.wire.messages import Verdict
from verify_node.rounds import late_drafts
from verify_node.rounds.outcomes import Moved, Outcome
from verify_node.rounds.planner import Entry, Round
from verify_node.rounds.scheduler import Scheduler
from verify_node.session.session import Session


def commit(session: Session, entry: Entry, outcome: Outcome, pool: PagePool) -> Moved:
    """The session goes on by what was decided; what its memory holds beyond that is freed."""
    base_len, answered = len(session.tokens), session.draft
    taken = session.extend(outcome.tokens, outcome.logprobs)
    session.num_cached = entry.base_len + outcome.num_accepted
    pool.truncate(session.session_id, session.num_cached)
    if entry.draft_round is not None:
        session.last_round = entry.draft_round
        session.draft = None
    if session.finished:
        pool.free(session.session_id)
        session.num_cached = 0
    return Moved(session, entry, outcome, base_len, taken, answered)


def observe(done: Round, moved: Sequence[Moved], sessions: Mapping[bytes, Session], scheduler: Scheduler) -> None:
    """Acceptance and goodput (Eq. 3, 4), and who had a part in the budget."""
    drafting = [session for session in sessions.values() if session.is_drafting]
    over_budget = [key for key in done.deferred if key in sessions and sessions[key].num_cached]
    scheduler.observe_shares(drafting, {*done.verified, *over_budget})
    scheduler.observe(done.number, [move.observation for move in moved])


def allocate(
    done: Round, moved: Sequence[Moved], sessions: Mapping[bytes, Session], scheduler: Scheduler, round_s: float
) -> dict[bytes, int]:
    """How many tokens each session that moved may draft next, by session (Eq. 5, or the policy's own way)."""
    participants = [move.session for move in moved if not move.session.finished]
    told = {session.session_id for session in participants}
    active = [
        session
        for session in sessions.values()
        if not session.finished and (session.assigned is not None or session.session_id in told)
    ]
    return scheduler.allocate(done.number, active, participants, round_s)


def settle(move: Moved, next_length: int, round_s: float, now: float) -> Verdict:
    """The session's verdict, kept in case it must be told again; its answer is awaited from now on."""
    session = move.session
    session.hope = move.hope(round_s)
    dropped = session.settle_ahead()
    session.last_verdict = move.verdict(next_length, dropped)
    session.sent.append((len(session.tokens), now))
    session.due_at = now + session.answer_s
    session.late_at = late_drafts.late_at(session, now, is_warm=move.entry.draft_round is not None)
    return session.last_verdict
