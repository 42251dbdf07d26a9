"""The line of a draft node's texts: those that came first have places, the others wait.

A place is a slot of this node and room for one more session at the verify node. The verify node does not say how much
room it has for this node; it refuses a session that is too many. A refused text goes back into the line, and the node
then counts on as many places as other texts have. After LATER_S the first in line tries one more, and the next one
follows at once if it was admitted. A text that ends makes room for the next without a wait.

Among one user's waiting texts the one of the lowest `priority` goes first, in the places that are that user's turn.
`core.py` opens and closes the sessions.
"""

from dataclasses import dataclass, field
from math import inf

from draft_node.core.session import Session

LATER_S = 1.0
"""After so long a verify node that had no room is asked again, by one waiting text."""


@dataclass(slots=True, eq=False)
class Entry:
    """One text in line or with a place."""

    session: Session
    arrived_at: float
    has_place: bool = False
    placed_at: float = 0.0
    is_admitted: bool = False  # the verify node answered since it has its place


@dataclass(slots=True)
class Line:
    """The texts of a node that has `num_slots` places of its own."""

    num_slots: float = inf
    _entries: dict[bytes, Entry] = field(default_factory=dict)
    _num_rooms: float = inf  # at the verify node, as far as is known
    _refused_at: float = -inf  # the verify node had no room then
    _asks_at: float = 0.0  # then one more is tried

    @property
    def num_seated(self) -> int:
        """Texts that have a place."""
        return sum(entry.has_place for entry in self._entries.values())

    @property
    def num_waiting(self) -> int:
        return len(self._entries) - self.num_seated

    @property
    def is_full(self) -> bool:
        """True if another text would have to wait."""
        return len(self._entries) >= self._num_places

    def has_place(self, session_id: bytes) -> bool:
        entry = self._entries.get(session_id)
        return entry is not None and entry.has_place

    def join(self, session: Session, now: float) -> None:
        self._entries[session.request.session_id] = Entry(session, now)

    def leave(self, session_id: bytes) -> None:
        """The text is over, or its user left."""
        self._entries.pop(session_id, None)

    def moved(self, session_id: bytes, now: float) -> bool:
        """The verify node sent the session a verdict. Returns whether another text may be admitted at once."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place or entry.is_admitted:
            return False
        entry.is_admitted = True
        if self.num_seated < self._num_rooms or entry.placed_at <= self._refused_at:
            return False
        self._asks_at = now  # there was room for this one, so there may be for another
        return True

    def refused(self, session_id: bytes, now: float) -> None:
        """The verify node had no room: the session waits on, as if it had never had a place."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place:
            return
        entry.has_place = False
        self._num_rooms, self._refused_at = self.num_seated, now
        self._asks_at = now + LATER_S

    def forget_rooms(self) -> None:
        """The verify node is another, or away: nothing is known of its room."""
        self._num_rooms = inf

    def turn(self, now: float) -> list[Session]:
        """Gives the free places, and returns the sessions that have one from now on."""
        waiting = [entry for entry in self._entries.values() if not (entry.has_place or entry.session.done)]
        if not waiting:
            return []
        self._ask_again(now)
        waiting.sort(key=_arrival)
        num_free = min(self._num_places - self.num_seated, len(waiting))
        entered: list[Session] = []
        while len(entered) < num_free:
            entry = _most_urgent(waiting)
            waiting.remove(entry)
            entry.has_place, entry.placed_at, entry.is_admitted = True, now, False
            entered.append(entry.session)
        return entered

    def _ask_again(self, now: float) -> None:
        """One more place is tried where the verify node had no room a while ago."""
        if self.num_seated >= self._num_rooms and now >= self._asks_at:
            self._num_rooms = self.num_seated + 1
            self._asks_at = now + LATER_S

    @property
    def _num_places(self) -> float:
        return min(self.num_slots, self._num_rooms)


def _most_urgent(waiting: list[Entry]) -> Entry:
    """Returns whom the next place goes to: of the first in line's user the text of the lowest priority.

    It trades its arrival with the first in line, so that no other user's turn comes earlier or later.
    """
    first = waiting[0]
    user = first.session.request.user
    own = [entry for entry in waiting if entry.session.request.user == user]
    chosen = min(own, key=lambda entry: (entry.session.request.priority, entry.arrived_at))
    if chosen is not first:
        chosen.arrived_at, first.arrived_at = first.arrived_at, chosen.arrived_at
        waiting.sort(key=_arrival)
    return chosen


def _arrival(entry: Entry) -> float:
    return entry.arrived_at
