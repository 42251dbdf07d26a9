"""Carries out what is decided on promises between two rounds; verdicts tell the draft nodes."""

from collections.abc import Iterable

from verify_node.core.counts import Counts
from verify_node.core.fleet import Fleet
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.session.checks import NOT_PROMISED
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


class Admission:
    """Promises, and what they mean for sessions."""

    def __init__(self, promises: Promises, register: Register, replies: Replies, counts: Counts, fleet: Fleet) -> None:
        self.promises = promises
        self._register, self._replies, self._counts, self._fleet = register, replies, counts, fleet
        self._decided_after = 0  # rounds

    def admit(self, num_rounds: int, now: float) -> list[Send]:
        """Carries out what is decided between two rounds, and makes the messages to those who are sent on or refused.

        A text that begins and is declined goes to a replica that would promise it, if there is one. One that is under
        way goes on as well as it can, though it asked to be refused. num_rounds: begun so far.
        """
        is_due = self.promises.may_change and self._decided_after != num_rounds
        if not (is_due or self.promises.has_undecided):
            return []
        self._decided_after = num_rounds
        self._register.free_released()  # what is cached of a text says how much of it is left to read
        self._lose(self.promises.lapse(now))
        sends: list[Send] = []
        for session_id, promised in self.promises.decide(self._register.sessions, now).items():
            session = self._register.sessions[session_id]
            sent_on: list[Send] = []
            if not session.opened.committed and not promised and session.promised is None:
                sent_on = self._fleet.promise_elsewhere(session, now)
            sends += sent_on or self._carry_out(session, now, promised=promised)
            self.promises.answered(session.deadline)
        return sends

    def withdraw(self, now: float) -> list[Send]:
        """Promises cannot be worked out: all of them end, and whoever asked gets none, or is refused if it wants that.

        They are told, and are served as well as can be.
        """
        lost, asking = self.promises.withdraw(self._register.sessions)
        self._lose(lost)
        sessions = self._register.sessions
        return [send for asked in asking for send in self._carry_out(sessions[asked], now, promised=False)]

    def _lose(self, session_ids: Iterable[bytes]) -> None:
        """Sessions have their promise no longer."""
        for session_id in session_ids:
            if (session := self._register.sessions.get(session_id)) is not None:
                session.admit(promised=False)

    def _carry_out(self, session: Session, now: float, *, promised: bool) -> list[Send]:
        """A session is served as it was decided, or refused as it asked to be."""
        begins, before = not session.opened.committed, session.promised
        is_refused = begins and not promised and session.opened.otherwise == "refuse"
        if begins and session.deadline is not None and (before is None or promised > before):
            if promised:
                self._counts.decided(session.deadline, "promised" if before is None else "later")
            else:
                self._counts.decided(session.deadline, "refused" if is_refused else "declined")
        session.admit(promised=promised)
        return self._replies.give_up(session, NOT_PROMISED, now) if is_refused else []
