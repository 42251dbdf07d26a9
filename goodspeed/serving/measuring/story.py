"""The newest events and transitions of a node's sessions, to find out how an error came about.

Ids, counts and states only: nothing of a text, a prompt or a user's name.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

S = TypeVar("S", bound=Enum)

Transitions: TypeAlias = Mapping[S, Mapping[str, S]]
"""All transitions of a state machine: the next state by the present one and the event."""

NUM_EVENTS = 100
"""Events remembered of each session."""

NUM_SESSIONS = 100
"""Sessions remembered, those with the newest events."""

NODE = b""
"""The id of events that concern no single session."""


Event: TypeAlias = tuple[float, str, int, Enum | None]
"""Time by the node's clock in seconds, event, a number of tokens or whatever the event counts, and the state afterwards
(None: of no session). A plain tuple, which takes least time to make."""


class Story:
    """The events of each session. Adding one takes a fraction of a microsecond; text is made only when it is read."""

    def __init__(self) -> None:
        self.now = 0.0  # of the newest event
        self._events: dict[bytes, deque[Event]] = {}  # by session, the one with the newest event last

    def note(self, session_id: bytes, event: str, number: int, state: Enum | None, now: float | None = None) -> None:
        """Adds an event. now: None: the time of the previous one."""
        if now is not None:
            self.now = now
        events = self._events.pop(session_id, None)
        if events is None:
            events = deque(maxlen=NUM_EVENTS)
            if len(self._events) >= NUM_SESSIONS:
                del self._events[next(iter(self._events))]
        self._events[session_id] = events
        events.append((self.now, event, number, state))

    def of(self, session_id: bytes) -> list[str]:
        """Returns the lines of one session, the oldest first."""
        return [_line(event) for event in self._events.get(session_id, ())]

    def all(self) -> dict[str, list[str]]:
        """Returns the lines by session id in hexadecimal; those of the node itself under ""."""
        return {session_id.hex(): self.of(session_id) for session_id in self._events}

    def told(self, session_id: bytes) -> str:
        """Returns one session's lines for an error message."""
        return f"; its story: {'; '.join(self.of(session_id)) or 'none'}"


def _line(event: Event) -> str:
    at, what, number, state = event
    return f"{at:.3f} s: {what} {number}" + (f" -> {state.value}" if state is not None else "")


class WrongTransition(RuntimeError):
    """An event that the table of transitions does not have: an error of this program, never of a peer."""


def follow(table: Transitions[S], state: S, event: str, session_id: bytes, story: Story) -> S:
    """Returns the state after an event; raises WrongTransition with the session's story if there is none."""
    after = table[state].get(event)
    if after is None:
        what = f"session {session_id.hex()} is {state.value}: {event} is not possible"
        raise WrongTransition(what + story.told(session_id))
    return after
