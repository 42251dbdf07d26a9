"""Who of a draft node's texts has a place, and who waits for one, in the order that an `Order` gives.

A place is a slot of this node and room for one more session at the verify node. How many rooms that has for this node
nobody tells; it refuses whoever is too many. So a text that is refused goes back into the line, and as many places are
believed in as others have. One more is tried after LATER_S, by the first in line alone, and the next at once when that
one was let in. Whoever ends makes room for the next without any wait.

Among one user's waiting texts those of the lowest `priority` go first, whatever the order, in the places that the
order gives to that user. Orders that take places away know no priorities.

Service is slot time. Knows nothing about messages; `core.py` opens and closes sessions as `turn` says.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf

from draft_node.core.session import Session
from goodspeed.fair.lengths import OutputLengths
from goodspeed.order import Job, Order, RateHistory, create, seats

LATER_S = 1.0
"""After so long a verify node that had no room is asked again, by one text of those that wait."""

CADENCE_S = 0.1
"""Slot time of one round before any was seen; about that of a verify node on a CPU."""

SMOOTHING = 0.1
"""Of the times that are learned from texts, for those of which nothing is known yet."""


@dataclass(slots=True, eq=False)
class Entry:
    """One text in line or with a place."""

    session: Session
    arrived_at: float
    waits_since: float | None  # None: it has a place
    waited_since: float  # the beginning of its last wait, which goes on if the verify node has no room
    seated_at: float = 0.0
    attained_s: float = 0.0  # in turns before this one
    rates: RateHistory = field(default_factory=RateHistory)
    num_drafted: int = 0  # of the session's statistics, when they were looked at last
    num_accepted: int = 0
    is_let_in: bool = False  # the verify node answered in this turn

    @property
    def has_place(self) -> bool:
        return self.waits_since is None

    def change_turns(self, other: "Entry") -> None:
        """Each counts as waiting since the other came."""
        self.arrived_at, other.arrived_at = other.arrived_at, self.arrived_at
        self.waits_since, other.waits_since = other.waits_since, self.waits_since
        self.waited_since, other.waited_since = other.waited_since, self.waited_since

    def turn_s(self, now: float) -> float:
        return now - self.seated_at if self.has_place else 0.0

    def observe(self) -> bool:
        """The session moved: takes its newest draft down. Returns whether it is the first time in this turn."""
        counts = self.session.statistics
        self.rates.observe(counts.num_accepted - self.num_accepted, counts.num_drafted - self.num_drafted)
        self.num_drafted, self.num_accepted = counts.num_drafted, counts.num_accepted
        is_first, self.is_let_in = not self.is_let_in, True
        return is_first


@dataclass(slots=True)
class Line:
    """The texts of a node that has `num_slots` places of its own."""

    num_slots: float = inf
    order: Order = field(default_factory=lambda: create("fcfs"))
    lengths: OutputLengths = field(default_factory=OutputLengths)
    _entries: dict[bytes, Entry] = field(default_factory=dict)
    _num_rooms: float = inf  # at the verify node, as far as is known
    _refused_at: float = -inf  # the verify node had no room then
    _asks_at: float = 0.0  # then one more is tried
    _cadence_s: float = CADENCE_S  # slot time of a round
    _opening_s: float = 0.0  # from a place to the first answer: what it costs to come back to one

    @property
    def num_seated(self) -> int:
        """Texts that have a place."""
        return sum(entry.has_place for entry in self._entries.values())

    @property
    def num_waiting(self) -> int:
        return len(self._entries) - self.num_seated

    @property
    def is_full(self) -> bool:
        """Whether another text would have to wait."""
        return len(self._entries) >= self._num_places

    def has_place(self, session_id: bytes) -> bool:
        entry = self._entries.get(session_id)
        return entry is not None and entry.has_place

    # -- events ----------------------------------------------------------------------------------------------------

    def join(self, session: Session, now: float) -> None:
        self._entries[session.request.session_id] = Entry(session, now, now, now)

    def leave(self, session_id: bytes) -> None:
        """The text is over, or its user left. Its length is learned if it has come to its end."""
        entry = self._entries.pop(session_id, None)
        if entry is not None and entry.session.is_complete:
            self.lengths.observe(entry.session.text.num_committed)

    def moved(self, session_id: bytes, now: float) -> bool:
        """The verify node sent the session a verdict. Returns whether another may be let in at once."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place:
            return False
        if not entry.observe():
            self._cadence_s += SMOOTHING * (self._round_s(entry, now) - self._cadence_s)
            return False
        self._opening_s += SMOOTHING * (entry.turn_s(now) - self._opening_s)
        if self.num_seated < self._num_rooms or entry.seated_at <= self._refused_at:
            return False
        self._asks_at = now  # there was room for this one, so there may be for another
        return True

    def refused(self, session_id: bytes, now: float) -> None:
        """The verify node had no room: the session waits on, as if it had never had a place."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place:
            return
        entry.waits_since = entry.waited_since
        self._num_rooms, self._refused_at = self.num_seated, now
        self._asks_at = now + LATER_S

    def forget_rooms(self) -> None:
        """The verify node is another, or away: nothing is known of its room."""
        self._num_rooms = inf

    def turn(self, now: float, *, displaces: bool = True) -> tuple[list[Session], list[Session]]:
        """Gives places, and takes them: returns the sessions that have one from now on, and those that lose theirs.

        displaces: whether a place may be taken away; it is not while the verify node is away.
        """
        entries: dict[Hashable, Entry] = {key: one for key, one in self._entries.items() if self._contends(one)}
        num_holders = sum(entry.has_place for entry in entries.values())
        if num_holders == len(entries):
            return [], []
        self._ask_again(now)
        num_places = self._num_places - (self.num_seated - num_holders)
        if num_places <= 0 and not num_holders:
            return [], []
        jobs = [self._job(entry, now) for entry in entries.values()]
        given = seats(self.order, jobs, num_places, now)
        num_free = len(given.enter) - len(given.leave)
        enter = [entries[job.job_id] for job in (given.enter if displaces else given.enter[:num_free])]
        leave = [entries[job.job_id] for job in given.leave] if displaces else []
        enter = self._by_priority(enter)
        for entry in leave:
            entry.attained_s += entry.turn_s(now)
            entry.waits_since = entry.waited_since = now
        for entry in enter:
            entry.waits_since, entry.seated_at, entry.is_let_in = None, now, False
        return _sessions(enter), _sessions(leave)

    def _by_priority(self, enter: Sequence[Entry]) -> list[Entry]:
        """The places that a user's texts are given go to the most urgent of those that wait.

        These change turns with whom they go before, so that nobody else's turn comes earlier or later.
        """
        if self.order.displaces or not any(entry.session.request.priority for entry in self._entries.values()):
            return list(enter)
        rank = {id(entry): place for place, entry in enumerate(enter)}
        chosen: list[Entry] = []
        for entry in enter:
            user = entry.session.request.user
            waiting = [one for one in self._waiting_of(user) if one not in chosen]
            first = min(waiting, key=lambda one: (one.session.request.priority, rank.get(id(one), inf), one.arrived_at))
            first.change_turns(entry)
            chosen.append(first)
        return chosen

    def _waiting_of(self, user: str) -> list[Entry]:
        entries = self._entries.values()
        return [one for one in entries if one.session.request.user == user and not (one.has_place or one.session.done)]

    def _contends(self, entry: Entry) -> bool:
        """Whether it wants a place, or has one that might be another's.

        A promise is kept by who keeps its place: closed at the verify node, a text would lose it. The user of a text
        that is over leaves soon.
        """
        if entry.session.done:
            return False
        return not entry.has_place or (self.order.displaces and not entry.session.promised)

    def _ask_again(self, now: float) -> None:
        """One more place is tried where the verify node had no room a while ago."""
        if self.num_seated >= self._num_rooms and now >= self._asks_at:
            self._num_rooms = self.num_seated + 1
            self._asks_at = now + LATER_S

    # -- what an order is told -------------------------------------------------------------------------------------

    @property
    def _num_places(self) -> float:
        return min(self.num_slots, self._num_rooms)

    def _job(self, entry: Entry, now: float) -> Job:
        session = entry.session
        turn_s = entry.turn_s(now)
        return Job(
            job_id=session.request.session_id,
            arrived_at=entry.arrived_at,
            waits_since=entry.waits_since,
            attained_s=entry.attained_s + turn_s,
            turn_s=turn_s,
            remaining_tokens=self.lengths.remaining(session.text.num_committed, session.request.max_tokens),
            rates=entry.rates.rates,
            num_drafted=entry.rates.num_drafted,
            round_s=self._round_s(entry, now),
            recompute_s=self._opening_s,
        )

    def _round_s(self, entry: Entry, now: float) -> float:
        """The session's own cadence, drafting and all; before its first round that of others."""
        num_rounds = entry.session.statistics.num_rounds
        return (entry.attained_s + entry.turn_s(now)) / num_rounds if num_rounds else self._cadence_s


def _sessions(entries: Sequence[Entry]) -> list[Session]:
    return [entry.session for entry in entries]
