"""Between two rounds: whether the next one may start now, and which sessions are ready for it. No I/O, no clock.

Sessions whose draft is late go without; whom a round waits for is decided in `rounds/planner.py`.
"""

from math import inf
from typing import NamedTuple

from verify_node.core.register import Register
from verify_node.places.places import Places
from verify_node.rounds import planner
from verify_node.rounds.choice import Choice
from verify_node.rounds.scheduler import Scheduler
from verify_node.session.session import Session

ROUNDS_KEPT = 64
"""Rounds after which what was kept of sessions that are over is forgotten."""


class Start(NamedTuple):
    """A round may start."""

    sessions: list[Session]  # that are not finished
    ready: list[Session]  # of them, those that a round can move


class Starting:
    """Looks whether a round may start; asked only while none is in flight."""

    def __init__(self, register: Register, scheduler: Scheduler, places: Places) -> None:
        self.wake_at = inf  # when to look again, if nothing happens before; infinity after a start
        self._register = register
        self._scheduler = scheduler
        self._places = places
        self._waiting: tuple[Session, float] | None = None  # no round before that time, while its draft is on its way

    def look(self, choice: Choice, num_rounds: int, round_s: float, now: float) -> Start | None:
        """Who is ready, if a round may start now; else `wake_at` says when to ask again.

        num_rounds: begun so far. round_s: smoothed duration of one.
        """
        self.wake_at = inf
        if self._is_waiting(now):
            return None
        self._register.free_released()
        every = self._register.sessions
        if num_rounds % ROUNDS_KEPT == 0:
            choice.keep(every)
            self._places.keep(every, self._scheduler.clients)
        sessions = [session for session in every.values() if not session.finished]
        for session in sessions:
            if session.awaits_draft and now >= session.late_at:
                session.go_without(now, num_rounds)
        ready = [session for session in sessions if session.can_move(round_s)]
        awaited = [session for session in sessions if session.awaits_draft]
        barred = awaited if self._scheduler.is_barrier else []
        start = planner.start(ready, barred, round_s, choice.hopes(ready, num_rounds + 1))
        if start.at <= now:
            return Start(sessions, ready)
        self.wake_at = min([start.at, *(session.late_at for session in awaited)])
        self._waiting = (start.whom, self.wake_at) if start.whom is not None else None
        return None

    def _is_waiting(self, now: float) -> bool:
        """Whether the same draft is still waited for, so that it need not look at all sessions again."""
        if self._waiting is None:
            return False
        awaited, ready_at = self._waiting
        is_awaited = awaited.awaits_draft or awaited.hopes_for_answer or awaited.hopes_for_model
        if now < ready_at and is_awaited and self._register.has(awaited):
            self.wake_at = ready_at
            return True
        self._waiting = None
        return False
