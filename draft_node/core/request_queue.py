"""The queue of a draft node's texts: some have places, the others wait.

A free place goes to the user with the fewest places. Users with equally many take turns, and a user's own texts come in
order of arrival.

A place is a slot of this node and room for one more session at the verify node. The verify node does not announce its
room; it refuses a session when it is full. A refused text returns to the queue, and the node then assumes as many
places as the other texts have. After LATER_S the next text tries one more place. If that text is admitted, the next one
follows at once. When a text ends, the next one gets its place without a wait. The verify node's room for texts with
prompt logprobs, which it may refuse although it has room for others, is learned in the same way.

Places are given out only as fast as the verify node's limit on messages allows, in case users abandon their texts.

`core.py` opens and closes the sessions.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from draft_node.core.session import Session
from goodspeed.wire.fields import BURST_S, LEAST_SESSIONS, SESSION_MESSAGES_PER_S, TOKENS_PER_MESSAGE, VERDICT_MESSAGES

LATER_S = 1.0
"""Seconds after a refusal for lack of room until one waiting text tries again."""

MESSAGES = 2.0
"""Cost of a text that is opened and abandoned, in messages, beside that of its tokens."""

MESSAGES_PER_S = SESSION_MESSAGES_PER_S * LEAST_SESSIONS / 4
BURST = BURST_S * SESSION_MESSAGES_PER_S * LEAST_SESSIONS / 8
"""Messages that openings may cost, per second and at once: a quarter and an eighth of the verify node's least limits,
which bar a draft node that exceeds them, with all its users."""


@dataclass(slots=True, eq=False)
class Entry:
    """One text, waiting or with a place."""

    session: Session
    has_place: bool = False
    placed_at: float = 0.0
    is_admitted: bool = False  # the verify node sent a verdict since the text got its place

    @property
    def user(self) -> str:
        return self.session.request.user


@dataclass(slots=True)
class Room:
    """Texts that the verify node is assumed to have room for, as far as its refusals tell."""

    num_texts: float = inf
    _refused_at: float = -inf  # time of the latest refusal
    _asks_at: float = 0.0  # when one more text is tried

    def refused(self, num_running: int, now: float) -> None:
        """Notes a refusal of one more text than num_running."""
        self.num_texts, self._refused_at = num_running, now
        self._asks_at = now + LATER_S

    def admitted(self, placed_at: float, num_running: int, now: float) -> bool:
        """Notes that a text was admitted, one of num_running. Returns True if another one may be tried at once."""
        if num_running < self.num_texts or placed_at <= self._refused_at:
            return False
        self._asks_at = now  # there was room for this one, so there may be for another
        return True

    def ask_again(self, num_running: int, now: float) -> None:
        """Allows one more text if the latest refusal or attempt was LATER_S ago."""
        if num_running >= self.num_texts and now >= self._asks_at:
            self.num_texts = num_running + 1
            self._asks_at = now + LATER_S


@dataclass(slots=True)
class Pace:
    """A leaky bucket of the messages that openings cost."""

    _spent: float = 0.0
    _at: float = 0.0

    def allows(self, now: float) -> bool:
        self._spent, self._at = max(0.0, self._spent - MESSAGES_PER_S * (now - self._at)), now
        return self._spent < BURST

    def opened(self, session: Session) -> None:
        self._spent += _cost(session)

    def answered(self, session: Session) -> None:
        """Takes back what the first verdict earns of a text's cost."""
        self._spent = max(0.0, self._spent - min(VERDICT_MESSAGES, _cost(session)))


def _cost(session: Session) -> float:
    return MESSAGES + len(session.tokens) / TOKENS_PER_MESSAGE


@dataclass(slots=True)
class RequestQueue:
    """The queue of a node. num_slots: texts that the node itself serves at once."""

    num_slots: float = inf
    _entries: dict[bytes, Entry] = field(default_factory=dict)  # a user's in order of arrival; users take turns
    _room: Room = field(default_factory=Room)  # for texts of any kind
    _prompt_room: Room = field(default_factory=Room)  # for texts with prompt logprobs
    _pace: Pace = field(default_factory=Pace)

    @property
    def num_running(self) -> int:
        return sum(entry.has_place for entry in self._entries.values())

    @property
    def num_waiting(self) -> int:
        return len(self._entries) - self.num_running

    def num_free(self, *, wants_prompt: bool) -> float:
        """Returns how many more texts would not have to wait. wants_prompt: whether they ask for prompt logprobs."""
        if self._able(self._waiting):
            return 0
        num_free = self._num_places - self.num_running
        if wants_prompt:
            num_free = min(num_free, self._prompt_room.num_texts - self._num_prompts)
        return max(0, num_free)

    def waiting_of(self, user: str, max_waiting: int) -> tuple[int, int]:
        """Returns how many of the user's texts wait, and how many may.

        A user may fill what others leave of max_waiting. Beyond that, up to twice as many texts in all, it may have an
        equal share of max_waiting among the users who have texts waiting. Texts that had a place and were refused by
        the verify node wait in addition.
        """
        waiting = Counter(entry.user for entry in self._entries.values() if not entry.has_place)
        num_own = waiting[user]
        num_others, share = waiting.total() - num_own, max_waiting // len(waiting.keys() | {user})
        return num_own, max(0, max_waiting - num_others, min(share, 2 * max_waiting - num_others))

    def has_place(self, session_id: bytes) -> bool:
        entry = self._entries.get(session_id)
        return entry is not None and entry.has_place

    def add(self, session: Session) -> None:
        self._entries[session.request.session_id] = Entry(session)

    def remove(self, session_id: bytes) -> None:
        """Removes a text that is over or whose user left."""
        gone = self._entries.pop(session_id, None)
        if gone is not None and gone.has_place:  # it was its user's turn: the others come next
            own = [key for key, entry in self._entries.items() if entry.user == gone.user and not entry.has_place]
            for key in own:
                self._entries[key] = self._entries.pop(key)

    def answered(self, session_id: bytes, now: float) -> bool:
        """Notes a verdict for the session. Returns True if another text may try for a place at once."""
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place or entry.is_admitted:
            return False
        entry.is_admitted = True
        self._pace.answered(entry.session)
        may_ask = self._room.admitted(entry.placed_at, self.num_running, now)
        if _wants_prompt(entry):
            may_ask |= self._prompt_room.admitted(entry.placed_at, self._num_prompts, now)
        return may_ask

    def refused(self, session_id: bytes, now: float, *, has_prompt_room: bool = True) -> None:
        """Returns a session to the queue, since the verify node had no room; the session retains its turn.

        has_prompt_room: False if there was no room for its prompt logprobs, which says nothing about other texts.
        """
        entry = self._entries.get(session_id)
        if entry is None or not entry.has_place:
            return
        entry.has_place = False
        if has_prompt_room:
            self._room.refused(self.num_running, now)
        else:
            self._prompt_room.refused(self._num_prompts, now)

    def forget_rooms(self) -> None:
        """Drops the estimate of the verify node's room, after that node changed or went away."""
        self._room, self._prompt_room = Room(), Room()

    def admit(self, now: float) -> list[Session]:
        """Gives out the free places; returns the sessions that got one."""
        waiting = self._waiting
        if not waiting:
            return []
        self._room.ask_again(self.num_running, now)
        if any(map(_wants_prompt, waiting)):
            self._prompt_room.ask_again(self._num_prompts, now)
        entered: list[Session] = []
        num_running = Counter(entry.user for entry in self._entries.values() if entry.has_place)
        while self.num_running < self._num_places and self._pace.allows(now) and (able := self._able(waiting)):
            entry = min(able, key=lambda one: num_running[one.user])
            num_running[entry.user] += 1
            waiting.remove(entry)
            self._pace.opened(entry.session)
            entry.has_place, entry.placed_at, entry.is_admitted = True, now, False
            entered.append(entry.session)
        return entered

    @property
    def _waiting(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if not (entry.has_place or entry.session.done)]

    @property
    def _num_places(self) -> float:
        return min(self.num_slots, self._room.num_texts)

    @property
    def _num_prompts(self) -> int:
        """Texts with prompt logprobs that have a place."""
        return sum(entry.has_place and _wants_prompt(entry) for entry in self._entries.values())

    def _able(self, waiting: list[Entry]) -> list[Entry]:
        """Returns the waiting texts without those that let others pass, for lack of room for prompt logprobs."""
        has_prompt_room = self._num_prompts < self._prompt_room.num_texts
        return [entry for entry in waiting if has_prompt_room or not _wants_prompt(entry)]


def _wants_prompt(entry: Entry) -> bool:
    return entry.session.request.num_prompt_logprobs is not None
