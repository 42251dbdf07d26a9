"""Decides when the next round starts, with which ready sessions, and which drafts it waits for. No I/O, no clock.

A session of the ratio rule is ready once its draft is *complete*, or late (`Session.awaits_draft`). Where rounds are
barriers, as in the paper, this applies to all sessions that may draft, and no round starts before. Otherwise a round
waits only *as long as it pays*: while drafts in flight bring their sessions more than the wait costs the others.
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import Refined
from verify_node.scheduler.choose import Choice, PendingDraft
from verify_node.scheduler.prefill import Prefill
from verify_node.scheduler.round import RoundLimits
from verify_node.session.session import Session

SHARE, SHARE_ALONE = 0.25, 0.5
"""Most time that drafts may hold up a round of several sessions, and of one, as a share of a round's time.

Bounds the loss if they do not arrive. With a quarter, one session's draft model beside a padded target came too late
for a third of the rounds after a wrong token. With a half, many sessions at a loaded node lost a quarter of their
tokens/s (AdaServe's Llama, 10 ms away)."""

SLACK_S = 0.0005
"""Accepted delay of an awaited draft, in seconds."""

_due_at = attrgetter("due_at")


class Earliest(NamedTuple):
    """The earliest start of the next round, and the session that it waits for."""

    at: float  # seconds, the core's clock; infinity while the round must wait for a session
    awaited: Session | None = None  # until its draft arrives, no other arrival can start the round earlier


class Starting:
    """Checks whether a round may start; to be called only while none is in flight."""

    def __init__(
        self, sessions: Mapping[bytes, Session], pool: PagePool, limits: RoundLimits, cost: Refined, *, is_barrier: bool
    ) -> None:
        """sessions: the open ones, a live view. is_barrier: every round waits for all drafts."""
        self.prefill = Prefill(cost, pool)
        self.wake_at = inf  # time of the next check, unless an event comes before; infinity after a start
        self._sessions = sessions
        self._pool = pool
        self._limits = limits
        self._is_barrier = is_barrier
        self._waiting: tuple[Session, float] | None = None  # no round before this time, while its draft is in flight

    def look(self, choice: Choice, num_rounds: int, round_s: float, now: float) -> list[Session] | None:
        """Returns the ready sessions if a round may start now; else sets `wake_at` to the time of the next check.

        num_rounds: started so far. round_s: smoothed duration of a round. Marks late drafts, which rounds no longer
        wait for.
        """
        self.wake_at = inf
        if self._is_waiting(now):
            return None
        sessions = [session for session in self._sessions.values() if not session.finished]
        for session in sessions:
            if session.awaits_draft and now >= session.drafts.late_at:
                session.go_without(now, num_rounds)
        ready = [session for session in sessions if session.can_move(round_s)]
        awaited = [session for session in sessions if session.awaits_draft]
        held_for = awaited if self._is_barrier else []
        self.prefill.begin(ready, awaited)
        deciding = self.deciding(ready)
        start = earliest(deciding, held_for, round_s, choice.pending_drafts(deciding, num_rounds + 1))
        if start.at <= now:
            return ready
        self.wake_at = min([start.at, *(session.drafts.late_at for session in awaited)])
        self._waiting = (start.awaited, self.wake_at) if start.awaited is not None else None
        return None

    def deciding(self, sessions: Sequence[Session]) -> Sequence[Session]:
        """Returns the sessions that the next round can decide a token for; all of them if there are none.

        They have pages, or find free ones, and little is left to prefill. Others wait for pages, or for turns to
        prefill a long text: they get no token, and their drafts are not verified, so they count neither in a round's
        worth nor in its budget.
        """
        pool, found, num_free, room = self._pool, [], self._pool.num_free, self.prefill.room
        for session in sessions:
            key, num_tokens = session.session_id, len(session.tokens)
            num_cached = pool.length(key)
            if num_cached and num_tokens - num_cached <= 1:  # it decodes
                found.append(session)
                continue
            needed = 0 if key in pool else pool.pages_needed(key, num_tokens)
            if needed > num_free:
                continue
            most = min(self._limits.most_prefill, room.most(room.rows, num_cached))
            if num_tokens - num_cached <= max(1, most):
                num_free -= needed
                found.append(session)
        return found or sessions

    def num_prefill(self, sessions: Sequence[Session], deciding: Sequence[Session]) -> int:
        """Returns how many tokens a round of these sessions prefills, as if nothing were in the prefix cache.

        deciding: those that the round can decide a token for. Of the others, only sessions with pages prefill.
        """
        keys = {session.session_id for session in deciding}
        feeding = [one for one in sessions if one.session_id in keys or one.session_id in self._pool]
        uncached = sum(len(one.tokens) - self._pool.length(one.session_id) - 1 for one in feeding)
        return int(min(self._limits.most_prefill, self.prefill.room.rows, uncached))

    def _is_waiting(self, now: float) -> bool:
        """True if the same draft is still awaited, so that the other sessions need no check."""
        if self._waiting is None:
            return False
        awaited, ready_at = self._waiting
        is_awaited = awaited.awaits_draft or awaited.expects_answer or awaited.expects_model
        if now < ready_at and is_awaited and self._sessions.get(awaited.session_id) is awaited:
            self.wake_at = ready_at
            return True
        self._waiting = None
        return False


def earliest(
    ready: Sequence[Session], awaited: Sequence[Session], round_s: float, pending: Sequence[PendingDraft] = ()
) -> Earliest:
    """Returns the earliest start of a round with the ready sessions.

    awaited: sessions whose complete drafts the round must wait for. round_s: duration of a round, 0 if unknown.
    pending: drafts of ready sessions that may be in flight.
    """
    if not ready:
        return Earliest(inf)
    if awaited:
        return Earliest(inf, awaited[-1])
    first = min(session.ready_since for session in ready)
    last = first + (SHARE if len(ready) > 1 else SHARE_ALONE) * round_s
    soon = [draft for draft in pending if first - SLACK_S < draft.due_at <= last]
    latest = _worth_waiting_for(sorted(soon, key=_due_at), len(ready), first, round_s)
    if latest is None:
        return Earliest(first)
    return Earliest(min(max(latest.due_at, first) + SLACK_S, last), latest.session)


def _worth_waiting_for(
    soon: Sequence[PendingDraft], num_ready: int, first: float, round_s: float
) -> PendingDraft | None:
    """Returns the final draft of `soon` (sorted by due time) for which waiting pays; None if it pays for none.

    A draft that just misses a round loses that round's time for each token that it brings. A wait costs every ready
    session the time of the wait.
    """
    found: PendingDraft | None = None
    best, gained, waited_until = 0.0, 0.0, first
    for draft in soon:
        at = max(draft.due_at, first)
        gained += draft.num_expected * round_s - num_ready * (at - waited_until)
        waited_until = at
        if gained > best:
            best, found = gained, draft
    return found
