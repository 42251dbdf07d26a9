"""Finds stop strings in a text that arrives in pieces. Knows nothing about tokens or sessions.

One matcher per stop string (Knuth, Morris and Pratt), so that a character costs the same however long a stop string
is, and the text may be cut anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


class StopFinder:
    """Releases text as soon as it is certain to come before any stop string.

    The match that is complete first wins; of those complete at the same character, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop string, which would match everywhere."""
        if "" in stops:
            raise ValueError("a stop string is empty; give at least one character")
        self._matchers = [_Matcher(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._held = ""  # what may yet become the beginning of a stop string
        self.found: str | None = None

    def push(self, text: str, *, counts: bool = True) -> str:
        """Returns the text that is certain now; nothing more once a stop string is found.

        With counts=False a stop string that this piece completes is text like any other.
        """
        if self.found is not None:
            return ""
        text, num_seen = self._held + text, len(self._held)
        for end, char in enumerate(text[num_seen:], num_seen + 1):
            complete = [matcher.stop for matcher in self._matchers if matcher.take(char)]
            if complete and counts:
                self.found = complete[0]
                return self._give(text, end - len(self.found), len(text))
        start = len(text) - max((matcher.num_matched for matcher in self._matchers), default=0)
        return self._give(text, start, start)

    def end(self) -> str:
        """Returns the text that was held back; call it when the text is complete."""
        return self._give(self._held, len(self._held), len(self._held))

    def _give(self, text: str, end: int, held_from: int) -> str:
        self._held = text[held_from:]
        return text[:end]


@dataclass(slots=True)
class _Matcher:
    """The longest beginning of one stop string that the text so far ends with."""

    stop: str
    num_matched: int = 0
    _borders: list[int] = field(init=False)  # by length of a beginning: the longest of its ends that is one, too

    def __post_init__(self) -> None:
        self._borders = [0, 0]
        for index in range(1, len(self.stop)):
            self._borders.append(self._longest(self._borders[index], self.stop[index]))

    def take(self, char: str) -> bool:
        """Adds a character; returns whether it completes the stop string."""
        self.num_matched = self._longest(self.num_matched, char)
        if self.num_matched < len(self.stop):
            return False
        self.num_matched = self._borders[self.num_matched]  # of an own end, the next one may begin
        return True

    def _longest(self, length: int, char: str) -> int:
        """Returns the longest matching beginning after `char`, where `length` characters matched before it."""
        while length and self.stop[length] != char:
            length = self._borders[length]
        return length + (self.stop[length] == char)
