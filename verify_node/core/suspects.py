"""Finds the session that makes rounds fail, and tells it from a target that fails for every session."""

from collections.abc import Iterable

from verify_node.session.session import Session

MAX_SUSPECTS = 64
"""Most sessions remembered, the newest."""

PATIENCE_S, MIN_IN_VAIN = 2.0, 5
"""Time in which all rounds may fail, and number of failed rounds, before they cost a session."""


class Suspects:
    """Sessions whose latest round failed although they were alone in it."""

    def __init__(self) -> None:
        self._works_for_others: dict[bytes, bool] = {}  # whether a round has succeeded since; the oldest first
        self._num_in_vain = 0  # failed rounds since the latest one that succeeded
        self._failing_since = 0.0  # time of the first of these

    def turns(self, ready: Iterable[Session]) -> list[Session]:
        """Returns the order in which sessions run alone: suspects first if rounds succeed, else last, the newest at the
        end."""
        places = {key: -1 if works else place for place, (key, works) in enumerate(self._works_for_others.items(), 1)}
        return sorted(ready, key=lambda one: (places.get(one.session_id, 0), one.ready_since, one.admitted))

    def succeeded(self, taken: Iterable[bytes]) -> None:
        """Notes that a round of these sessions succeeded."""
        self._num_in_vain = 0
        self._works_for_others = {key: True for key in self._works_for_others if key not in taken}

    def failed(self, now: float) -> None:
        """Notes that a round failed."""
        if not self._num_in_vain:
            self._failing_since = now
        self._num_in_vain += 1

    def failed_alone(self, session: Session, now: float, *, was_half_done: bool) -> bool:
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
