"""Decodes token ids to text piece by piece, up to the first stop string, never splitting a character."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from goodspeed.engine.tokenizing.text import decode, decode_all_but

REPLACEMENT = "\ufffd"
"""A decoder's character for invalid UTF-8 bytes; at the end of a text usually an incomplete character."""

MAX_OPEN = 3
"""Most replacement characters that one incomplete character decodes to."""

MAX_WINDOW = 16
"""Most tokens in the window while the text never ends in a complete character."""


class TextStream:
    """Text of a growing list of tokens; `push` returns the new text that is certain, `end` the rest."""

    def __init__(self, tokenizer: Any, hidden: Collection[int] | None = None) -> None:
        """hidden: special tokens that are not part of the text; None: all of them."""
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._window: list[int] = []  # latest tokens; earlier ones can no longer change the text
        self._num_given = 0  # characters of the window's text already returned

    def push(self, tokens: Sequence[int]) -> str:
        """Returns the text that these tokens complete."""
        self._window += tokens
        text = self._decode()
        num_open = _num_open(text)
        new = text[self._num_given : len(text) - num_open]
        if not num_open:
            self._forget(1, num_open)
        elif len(self._window) > MAX_WINDOW:
            self._forget(MAX_WINDOW // 2, num_open)
        else:
            self._num_given += len(new)
        return new

    def end(self) -> str:
        """Returns the text that was held back."""
        new = self._decode()[self._num_given :]
        self._num_given += len(new)
        return new

    def _decode(self) -> str:
        if self._hidden is None:
            return decode(self._tokenizer, self._window)
        return decode_all_but(self._tokenizer, self._window, self._hidden)

    def _forget(self, all_but: int, num_open: int) -> None:
        """Drops the window's tokens but the latest `all_but`. num_open: characters of their text not released yet."""
        del self._window[:-all_but]
        self._num_given = len(self._decode()) - num_open


def _num_open(text: str) -> int:
    """Returns the number of final characters that further tokens may change."""
    return min(len(text) - len(text.rstrip(REPLACEMENT)), MAX_OPEN)


class StopFinder:
    """Releases text as soon as it is certain to precede any stop string.

    The match that ends first counts; of several that end at the same character, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop string, which would match everywhere."""
        if "" in stops:
            raise ValueError("a stop string is empty; give at least one character")
        self._stops = stops
        self._held = ""  # possible beginning of a stop string
        self.found: str | None = None

    def push(self, text: str, *, counts: bool = True) -> str:
        """Returns the text that is now certain; nothing more once a stop string is found.

        counts: False: a stop string that this piece completes is ordinary text.
        """
        if self.found is not None:
            return ""
        text, num_held = self._held + text, len(self._held)
        ends = list[tuple[int, int, str]]()
        for stop in self._stops if counts else ():
            at = text.find(stop, max(0, num_held + 1 - len(stop)))  # earlier matches did not count
            if at >= 0:
                ends.append((at + len(stop), at, stop))
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        certain = len(text) - max((_num_begun(stop, text) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]

    def end(self) -> str:
        """Returns the text that was held back; call it when the text is complete."""
        held, self._held = self._held, ""
        return held


def _num_begun(stop: str, text: str) -> int:
    """Returns the length of the longest proper prefix of a stop string that ends the text."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


class LeadingWhitespace:
    """Removes a text's leading whitespace while the text comes in pieces."""

    def __init__(self, *, is_left_out: bool) -> None:
        self._is_left_out = is_left_out  # still within the leading whitespace

    def push(self, text: str) -> str:
        """Returns the next piece without the text's leading whitespace."""
        if not self._is_left_out:
            return text
        text = text.lstrip()
        self._is_left_out = not text
        return text


@dataclass(frozen=True, slots=True)
class Growth:
    """The text that one token adds. All counts are characters."""

    num_decoded: int  # some may be held back as the possible beginning of a stop string
    num_left_out: int  # whitespace before the text, dropped
    text: str  # certain and released


class GrowingText:
    """Turns tokens into text that is certain, until a stop string is complete."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], *, is_trimmed: bool) -> None:
        """is_trimmed: drops the text's leading whitespace; stop strings are still matched in the untrimmed text."""
        self._stream = TextStream(tokenizer)
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.found

    def push(self, token_id: int, *, counts: bool = True) -> Growth:
        """Adds a token. counts: False: a stop string that the token completes is ordinary text."""
        decoded = self._stream.push([token_id])
        return self._grow(len(decoded), self._stops.push(decoded, counts=counts))

    def end(self, *, counts: bool = True) -> Growth:
        """Returns the text held back, after the final token; the text may still complete a stop string."""
        decoded = self._stream.end()
        return self._grow(len(decoded), self._stops.push(decoded, counts=counts) + self._stops.end())

    def _grow(self, num_decoded: int, text: str) -> Growth:
        kept = self._leading.push(text)
        return Growth(num_decoded, len(text) - len(kept), kept)
