"""Decodes token ids to text piece by piece, up to the first stop string, never splitting a character."""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from goodspeed.engine.tokenizing.text import decode, special_ids

REPLACEMENT = "\ufffd"
"""A decoder's character for invalid UTF-8 bytes; at the end of a text usually an incomplete character."""

MAX_OPEN = 3
"""Most replacement characters that one incomplete character decodes to."""

MAX_PENDING = 16
"""Most tokens that are decoded again and again while their text never ends in a complete character."""


MAX_BEFORE = 8
"""Tokens of a prompt that are decoded before the first token of its continuation."""


class TextStream:
    """Text of a growing list of tokens; `push` returns the new text that is certain, `end` the rest.

    A token's text may depend on the one before it: some decoders strip a text's first space, or join single bytes. So
    the tokens of the newest complete text are decoded again, with those that follow.
    """

    def __init__(self, tokenizer: Any, hidden: Collection[int] | None = None, before: Sequence[int] = ()) -> None:
        """hidden: special tokens that are not part of the text; None: all of them. before: the tokens that the text
        continues; else its first space may be stripped."""
        self._tokenizer = tokenizer
        self._hidden = special_ids(tokenizer) if hidden is None else hidden
        self._context: list[int] = []  # tokens of the newest complete text; earlier ones change no later text
        self._context_text = ""
        self._pending: list[int] = []  # tokens since then
        self._num_given = 0  # characters of their text already returned
        shown = [*islice((token for token in reversed(before) if token not in self._hidden), MAX_BEFORE + MAX_OPEN)]
        for size in range(MAX_BEFORE, MAX_BEFORE + MAX_OPEN + 1):  # the first of them may lie within a character
            self._begin_after(shown[:size][::-1], [])
            if not self._context_text.endswith(REPLACEMENT):
                break
        else:  # the text is cut within a character
            self._begin_after([], [])

    def push(self, tokens: Sequence[int]) -> str:
        """Returns the text that these tokens complete."""
        return "".join(self._push(token) for token in tokens if token not in self._hidden)

    def _push(self, token: int) -> str:
        self._pending.append(token)
        text = self._text()
        num_open = min(len(text) - len(text.rstrip(REPLACEMENT)), MAX_OPEN)  # characters that further tokens may change
        new = text[self._num_given : len(text) - num_open]
        if not num_open:
            self._begin_after(self._pending, [])
        elif len(self._pending) > MAX_PENDING:
            self._begin_after([], self._pending[-MAX_PENDING // 2 :])
            self._num_given = len(self._text()) - num_open
        else:
            self._num_given += len(new)
        return new

    def end(self) -> str:
        """Returns the text that was held back."""
        new = self._text()[self._num_given :]
        self._num_given += len(new)
        return new

    def _begin_after(self, context: list[int], pending: list[int]) -> None:
        self._context, self._pending, self._num_given = context, pending, 0
        self._context_text = self._decode(context)

    def _text(self) -> str:
        """Returns the text of the pending tokens.

        A decoder that joins single bytes shows all of them as invalid while the last character is incomplete, even
        those of complete characters before it. Then the pending tokens are decoded alone.
        """
        whole, before = self._decode(self._context + self._pending), self._context_text
        if not whole.startswith(before):
            return self._decode(self._pending)
        if whole.endswith(REPLACEMENT):
            alone = self._decode(self._pending)
            if whole.count(REPLACEMENT) > (before + alone).count(REPLACEMENT):
                return alone
        return whole[len(before) :]

    def _decode(self, tokens: Sequence[int]) -> str:
        return decode(self._tokenizer, tokens, shows_special=True)


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
