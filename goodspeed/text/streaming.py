"""Decodes token ids to text piece by piece, never cutting a character. Knows nothing about sessions."""

from collections.abc import Collection, Sequence
from typing import Any

from goodspeed.engine.tokenizing.text import decode, decode_all_but

REPLACEMENT = "\ufffd"
"""A decoder's character for bytes that are no UTF-8; at the end of a text they mostly are an incomplete character."""

MAX_OPEN = 3
"""Most replacement characters that an incomplete character decodes to."""

MAX_WINDOW = 16
"""Most tokens in the window of a text that never ends in a complete character."""


class TextStream:
    """Text of a growing list of tokens; `push` returns the new, certain text, `end` the rest."""

    def __init__(self, tokenizer: Any, hidden: Collection[int] | None = None) -> None:
        """hidden: special tokens that are no part of the text; None: all of them."""
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._window: list[int] = []  # the last tokens: those before can no longer change the text
        self._num_given = 0  # characters of the window's text that were given out

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
        """Keeps the last `all_but` tokens as context; num_open characters of their text are not released yet."""
        del self._window[:-all_but]
        self._num_given = len(self._decode()) - num_open


def _num_open(text: str) -> int:
    """Returns the number of characters at the end that the next tokens may change."""
    return min(len(text) - len(text.rstrip(REPLACEMENT)), MAX_OPEN)
