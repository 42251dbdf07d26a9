"""A text as its reader gets it, token by token: decoded, up to its first stop string, and where that is wanted without
the whitespace that it begins with. Knows nothing about models, sessions or the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from goodspeed.text.leading_whitespace import LeadingWhitespace
from goodspeed.text.stops import StopFinder
from goodspeed.text.streaming import TextStream


@dataclass(frozen=True, slots=True)
class Growth:
    """What one token adds. All counts are characters."""

    num_decoded: int  # some may be held back until it is certain that no stop string begins there
    num_left_out: int  # whitespace before the text, dropped
    text: str  # certain, and given out


class GrowingText:
    """Takes tokens and gives out text that is certain, until a stop string is complete."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], *, is_trimmed: bool) -> None:
        """is_trimmed: the text begins with its first character that is no whitespace; stop strings are looked for in
        the text as the model wrote it."""
        self._stream = TextStream(tokenizer)
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.found

    def push(self, token_id: int, *, counts: bool = True) -> Growth:
        """Adds a token; with counts=False, a stop string that it completes is text like any other."""
        decoded = self._stream.push([token_id])
        return self._grow(len(decoded), self._stops.push(decoded, counts=counts))

    def end(self, *, counts: bool = True) -> Growth:
        """What was held back, when no more tokens come; it may still complete a stop string."""
        decoded = self._stream.end()
        return self._grow(len(decoded), self._stops.push(decoded, counts=counts) + self._stops.end())

    def _grow(self, num_decoded: int, text: str) -> Growth:
        kept = self._leading.push(text)
        return Growth(num_decoded, len(text) - len(kept), kept)
