"""Carries out admission decisions on promises between two rounds; verdicts report the promises to the draft nodes."""

from collections.abc import Iterable

from verify_node.core.counts import Counts
from verify_node.core.fleet import Fleet
from verify_node.core.refusals import NOT_PROMISED
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


class Admission:
    """Applies admission decisions to sessions."""

    def __init__(self, promises: Promises, register: Register, replies: Replies, counts: Counts, fleet: Fleet) -> None:
        self.promises = promises
        self._register, self._replies, self._counts, self._fleet = register, replies, counts, fleet
        self._decided_after = 0  # rounds begun when decisions were last made

    def admit(self, num_rounds: int, now: float) -> list[Send]:
        """Carries out the decisions between two rounds. Returns messages for redirected and refused sessions.

        A new session that is declined is redirected to a replica that would promise its objectives, if there is one. A
        declined session with committed tokens continues as best effort, even if it asked to be refused. num_rounds:
        rounds begun so far.
        """
        is_due = self.promises.may_change and self._decided_after != num_rounds
        if not (is_due or self.promises.has_undecided):
            return []
        self._decided_after = num_rounds
        self._register.sessions.free_released()  # decisions depend on how much of each text is cached
        self.lapse(now)
        sends: list[Send] = []
        for session_id, promised in self.promises.decide(self._register.sessions, now).items():
            session = self._register.sessions[session_id]
            sent_on: list[Send] = []
            if not session.opened.committed and not promised and session.promised is None:
                sent_on = self._fleet.promise_elsewhere(session, now)
            sends += sent_on or self._carry_out(session, now, promised=promised)
            self.promises.answered(session.deadline)
        return sends

    def lapse(self, now: float) -> None:
        """Ends the promises that only their draft nodes could keep, also while no round takes place."""
        self._withdraw_promises(self.promises.lapse(self._register.sessions, now))

    def withdraw(self, now: float) -> list[Send]:
        """Ends all promises, because decisions cannot be computed. Sessions continue as best effort and are told so.

        Undecided sessions get no promise; those that asked for it are refused.
        """
        lost, asking = self.promises.withdraw(self._register.sessions)
        self._withdraw_promises(lost)
        sessions = self._register.sessions
        return [send for asked in asking for send in self._carry_out(sessions[asked], now, promised=False)]

    def _withdraw_promises(self, session_ids: Iterable[bytes]) -> None:
        for session_id in session_ids:
            if (session := self._register.sessions.get(session_id)) is not None:
                session.admit(promised=False)

    def _carry_out(self, session: Session, now: float, *, promised: bool) -> list[Send]:
        """Applies a decision: serves the session, or refuses a new one that asked to be refused without a promise.

        A promise that ended later refuses nothing, even if the opening arrives again.
        """
        begins = not session.opened.committed
        is_refused = begins and session.promised is None and not promised and session.opened.otherwise == "refuse"
        before = session.was_promised if session.promised is None else session.promised
        if begins and session.deadline is not None and (before is None or promised > before):
            if promised:
                self._counts.decided(session.deadline, "promised" if before is None else "later")
            else:
                self._counts.decided(session.deadline, "refused" if is_refused else "declined")
        session.admit(promised=promised)
        return self._replies.give_up(session, NOT_PROMISED, now) if is_refused else []
