"""Finds the session that makes rounds fail, and tells it from a target that fails for every session."""

from collections.abc import Collection, Iterable
from enum import Enum

from verify_node.core.refusals import HALF_DONE, round_failed
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.session.session import Session

MAX_SUSPECTS = 64
"""Most sessions remembered, the newest."""

PATIENCE_S, MIN_IN_VAIN = 2.0, 5
"""Time in which all rounds may fail, and number of failed rounds, before they cost a session."""


class Stage(Enum):
    """The step that an exception is attributed to."""

    IDLE = "idle"
    PLANNING = "planning"
    ALLOTTING = "allotting"  # within planning: computes the promises' part of the round
    IN_FLIGHT = "in flight"
    FINISHING = "finishing"


class FaultIsolation:
    """The search: after a failed round its sessions run alone; those whose rounds still fail are suspects."""

    def __init__(self, register: Register, replies: Replies) -> None:
        self.stage = Stage.IDLE
        self.sessions: Collection[Session] = ()  # of the round that is being planned, computed or finished
        self.num_alone = 0  # remaining rounds of one session each
        self._register, self._replies = register, replies
        self._works_for_others: dict[bytes, bool] = {}  # suspects; whether a round has succeeded since; oldest first
        self._num_in_vain = 0  # failed rounds since the latest one that succeeded
        self._failing_since = 0.0  # time of the first of these

    def enter(self, stage: Stage, sessions: Collection[Session] | None = None) -> None:
        """Attributes an exception from now on to this stage of these sessions' round; None: of the same round."""
        self.stage, self.sessions = stage, self.sessions if sessions is None else sessions

    def rest(self) -> None:
        """Attributes an exception from now on to no round."""
        self.enter(Stage.IDLE, ())

    def finish(self) -> None:
        """Attributes an exception from now on to finishing the round in flight; counts `num_alone` down."""
        self.enter(Stage.FINISHING)
        self.num_alone = max(0, self.num_alone - 1)

    def turns(self, ready: Iterable[Session]) -> list[Session]:
        """Returns the sessions in the order in which they run alone: suspects first if rounds succeed, else last.

        The others follow one another by their waits.
        """
        places = {key: -1 if works else place for place, (key, works) in enumerate(self._works_for_others.items(), 1)}
        return sorted(ready, key=lambda one: (places.get(one.session_id, 0), one.ready_since, one.admitted))

    def succeeded(self, taken: Iterable[bytes]) -> None:
        """Ends a round of these sessions that succeeded."""
        self.rest()
        self._num_in_vain = 0
        self._works_for_others = {key: True for key in self._works_for_others if key not in taken}

    def failed(self, why: str, now: float) -> list[Send]:
        """Ends a round that failed. Its sessions then run alone, for as many rounds as there were sessions.

        After a half-done `Rounds.finish` its sessions end here, and their draft nodes reopen them. A session is given
        up only as `_gives_up` says: a device that fails for a while costs none.
        """
        failed, was_half_done = [*self.sessions], self.stage is Stage.FINISHING
        self.rest()
        self.num_alone = max(self.num_alone, len(failed))
        if not self._num_in_vain:
            self._failing_since = now
        self._num_in_vain += 1
        sends: list[Send] = []
        for session in [session for session in failed if self._register.sessions.has(session)]:
            is_alone = len(failed) == 1
            if is_alone:
                self._register.pool.withdraw(session.session_id)  # what is cached may have made the target fail
            if is_alone and self._gives_up(session, now, was_half_done=was_half_done):
                sends += self._replies.give_up(session, round_failed(why), now)
            elif was_half_done:
                self._register.sessions.drop(session, may_return=True)
                sends += self._replies.refuse(session.peer_id, HALF_DONE, now, about=session.opened)
        return sends

    def _gives_up(self, session: Session, now: float, *, was_half_done: bool) -> bool:
        """Returns whether to give up a session whose round failed although it ran alone.

        At the second time, if a round of others has succeeded in between or if its draft node had to reopen it
        (was_half_done). Also if all rounds have failed for PATIENCE_S: perhaps only sessions like this one are left.
        """
        works_for_others = self._works_for_others.pop(session.session_id, None)
        is_second = works_for_others or (was_half_done and works_for_others is not None)
        has_waited = self._num_in_vain >= MIN_IN_VAIN and now - self._failing_since > PATIENCE_S
        if is_second or has_waited:
            return True
        self._works_for_others[session.session_id] = False
        if len(self._works_for_others) > MAX_SUSPECTS:
            del self._works_for_others[next(iter(self._works_for_others))]
        return False
