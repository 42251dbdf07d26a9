"""Decides when the next round starts, who is ready for it, and whom it waits for until then. No I/O, no clock.

A session of the ratio rule is ready once its draft is *complete*, or late (`Session.awaits_draft`). Where rounds are
barriers, as in the paper, that goes for everybody who may draft, and nothing starts before. Otherwise a round waits for
nobody, unless what is about to arrive brings its session more than the wait costs the others: *as long as it pays*.
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from verify_node.scheduler.select import Choice, Hope
from verify_node.session.session import Session

SHARE = 0.25
"""Share of a round's time by which drafts may hold up a round. It bounds what is lost where they do not come."""

SLACK_S = 0.0005
"""A draft that is waited for may come later than expected by so much."""

_due_at = attrgetter("due_at")


class Start(NamedTuple):
    """A round may start."""

    sessions: list[Session]  # that are not finished
    ready: list[Session]  # of them, those that a round can move


class Earliest(NamedTuple):
    """The earliest start of the next round, and for whom it waits till then."""

    at: float  # seconds, the core's clock; infinity while somebody has to be waited for
    whom: Session | None = None  # until its draft arrives, no other arrival can start the round earlier


class Starting:
    """Looks whether a round may start; asked only while none is in flight."""

    def __init__(self, sessions: Mapping[bytes, Session], *, is_barrier: bool) -> None:
        """sessions: those that are open, now and later. is_barrier: every round waits for all drafts."""
        self.wake_at = inf  # when to look again, if nothing happens before; infinity after a start
        self._sessions = sessions
        self._is_barrier = is_barrier
        self._waiting: tuple[Session, float] | None = None  # no round before that time, while its draft is on its way

    def look(self, choice: Choice, num_rounds: int, round_s: float, now: float) -> Start | None:
        """Returns who is ready, if a round may start now; else `wake_at` says when to ask again.

        num_rounds: begun so far. round_s: smoothed duration of one. Sessions whose draft is late go without.
        """
        self.wake_at = inf
        if self._is_waiting(now):
            return None
        sessions = [session for session in self._sessions.values() if not session.finished]
        for session in sessions:
            if session.awaits_draft and now >= session.late_at:
                session.go_without(now, num_rounds)
        ready = [session for session in sessions if session.can_move(round_s)]
        awaited = [session for session in sessions if session.awaits_draft]
        barred = awaited if self._is_barrier else []
        start = earliest(ready, barred, round_s, choice.hopes(ready, num_rounds + 1))
        if start.at <= now:
            return Start(sessions, ready)
        self.wake_at = min([start.at, *(session.late_at for session in awaited)])
        self._waiting = (start.whom, self.wake_at) if start.whom is not None else None
        return None

    def _is_waiting(self, now: float) -> bool:
        """Returns whether the same draft is still waited for, so that it need not look at all sessions again."""
        if self._waiting is None:
            return False
        awaited, ready_at = self._waiting
        is_awaited = awaited.awaits_draft or awaited.hopes_for_answer or awaited.hopes_for_model
        if now < ready_at and is_awaited and self._sessions.get(awaited.session_id) is awaited:
            self.wake_at = ready_at
            return True
        self._waiting = None
        return False


def earliest(
    ready: Sequence[Session], awaited: Sequence[Session], round_s: float, hopes: Sequence[Hope] = ()
) -> Earliest:
    """The earliest start of a round with the sessions that are ready.

    awaited: those without whose complete drafts no round starts. round_s: how long a round takes, 0 if that is not
    known. hopes: those of `ready` whose drafts are on their way.
    """
    if not ready:
        return Earliest(inf)
    if awaited:
        return Earliest(inf, awaited[-1])
    first = min(session.ready_since for session in ready)
    last = first + SHARE * round_s
    soon = [hope for hope in hopes if first - SLACK_S < hope.due_at <= last]
    latest = _worth_waiting_for(sorted(soon, key=_due_at), len(ready), first, round_s)
    if latest is None:
        return Earliest(first)
    return Earliest(min(max(latest.due_at, first) + SLACK_S, last), latest.session)


def _worth_waiting_for(soon: Sequence[Hope], num_ready: int, first: float, round_s: float) -> Hope | None:
    """The last of `soon` (sorted by due time) for which waiting pays; None if it pays for none.

    A draft that just misses a round loses that round's time for each token that it brings. A wait costs every session
    that is ready as much.
    """
    found: Hope | None = None
    best, gained, waited_until = 0.0, 0.0, first
    for hope in soon:
        at = max(hope.due_at, first)
        gained += hope.num_expected * round_s - num_ready * (at - waited_until)
        waited_until = at
        if gained > best:
            best, found = gained, hope
    return found
