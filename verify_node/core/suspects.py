"""Finds the session that makes rounds fail, and tells it from a target that fails for every session."""

from collections.abc import Iterable

from verify_node.session.session import Session

MAX_SUSPECTS = 64
"""Most sessions remembered, the newest."""

MAX_IN_VAIN = 40
"""Failed rounds in a row that cost no session. The loop's pauses make them take two seconds (`serving/loop.py`)."""


class Suspects:
    """Sessions whose latest round failed although they were alone in it."""

    def __init__(self) -> None:
        self._works_for_others: dict[bytes, bool] = {}  # whether a round has succeeded since; the oldest first
        self._num_in_vain = 0  # failed rounds since the latest one that succeeded

    def turns(self, ready: Iterable[Session]) -> list[Session]:
        """Returns the order in which sessions run alone: suspects first if rounds succeed, else last, the newest at the
        end."""
        places = {key: -1 if works else place for place, (key, works) in enumerate(self._works_for_others.items(), 1)}
        return sorted(ready, key=lambda one: (places.get(one.session_id, 0), one.ready_since, one.admitted))

    def succeeded(self, taken: Iterable[bytes]) -> None:
        """Notes that a round of these sessions succeeded."""
        self._num_in_vain = 0
        self._works_for_others = {key: True for key in self._works_for_others if key not in taken}

    def failed(self) -> None:
        """Notes that a round failed."""
        self._num_in_vain += 1

    def failed_alone(self, session: Session, *, was_half_done: bool) -> bool:
        """Returns whether to give up a session whose round failed although it ran alone.

        At the second time, if a round of others has succeeded in between or if its draft node had to reopen it
        (was_half_done). Also after too many failed rounds, since perhaps only sessions like this one are left.
        """
        works_for_others = self._works_for_others.pop(session.session_id, None)
        is_second = works_for_others or (was_half_done and works_for_others is not None)
        if is_second or self._num_in_vain > MAX_IN_VAIN:
            return True
        self._works_for_others[session.session_id] = False
        if len(self._works_for_others) > MAX_SUSPECTS:
            del self._works_for_others[next(iter(self._works_for_others))]
        return False
