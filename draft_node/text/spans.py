"""The origins of the parts of a text: accepted drafts, the target itself (recovered and bonus tokens), or, while the
verify node was away, the draft model alone.

Knows nothing about tokens: what is told are characters, each of which came with the token that completed it.
"""

from collections import deque
from typing import NamedTuple


class Span(NamedTuple):
    """A part of a text."""

    text: str
    accepted: bool  # the draft model wrote it, and the target agreed
    local: bool = False  # the draft model wrote it, and nobody verified it


class _Origin(NamedTuple):
    """The origin of so many characters."""

    num_chars: int
    accepted: bool
    local: bool


class Origins:
    """Remembers the origin of characters that are held back until they are given out."""

    def __init__(self) -> None:
        self._waiting: deque[_Origin] = deque()  # in order

    def push(self, num_chars: int, accepted: bool, local: bool = False) -> None:
        """So many characters more; they may be given out later."""
        if num_chars:
            self._waiting.append(_Origin(num_chars, accepted, local))

    def drop(self, num_chars: int) -> None:
        """So many characters are not given out."""
        self.take(" " * num_chars)

    def take(self, text: str) -> tuple[Span, ...]:
        """The text that is given out next, in spans as long as can be."""
        spans, start = list[Span](), 0
        while start < len(text):
            num_chars, accepted, local = self._waiting.popleft()
            end = min(start + num_chars, len(text))
            if end - start < num_chars:
                self._waiting.appendleft(_Origin(start + num_chars - end, accepted, local))
            before = spans.pop().text if spans and spans[-1][1:] == (accepted, local) else ""
            spans.append(Span(before + text[start:end], accepted, local))
            start = end
        return tuple(spans)
