"""Where the parts of a text came from: accepted drafts, or the target itself (recovered and bonus tokens).

Knows nothing about tokens: what is told are characters, each of which came with the token that completed it.
"""

from collections import deque
from typing import NamedTuple


class Span(NamedTuple):
    """A part of a text."""

    text: str
    accepted: bool  # the draft model wrote it, and the target agreed


class Origins:
    """Remembers the origin of characters that are held back until they are given out."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, bool]] = deque()  # (number of characters, accepted), in order

    def push(self, num_chars: int, accepted: bool) -> None:
        """So many characters more; they may be given out later."""
        if num_chars:
            self._waiting.append((num_chars, accepted))

    def take(self, text: str) -> tuple[Span, ...]:
        """The text that is given out next, in spans as long as can be."""
        spans, start = list[Span](), 0
        while start < len(text):
            num_chars, accepted = self._waiting.popleft()
            end = min(start + num_chars, len(text))
            if end - start < num_chars:
                self._waiting.appendleft((start + num_chars - end, accepted))
            before = spans.pop().text if spans and spans[-1].accepted == accepted else ""
            spans.append(Span(before + text[start:end], accepted))
            start = end
        return tuple(spans)
