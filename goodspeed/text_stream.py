"""Token ids to text, piece by piece, never cutting a character. Knows nothing about models or sessions."""

from typing import Any

from goodspeed.engine.text import decode

REPLACEMENT = "\ufffd"
"""What a decoder puts where bytes are no UTF-8; at the end of a text it mostly means: the rest is still to come."""

MAX_HELD = 8
"""Tokens after which a trailing replacement character is believed to be real."""


class TextStream:
    """Text of a growing list of tokens; every `push` gives what is new and certain, `end` the rest."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._start = 0  # decoding begins here: the tokens before can no longer change
        self._shown = ""  # text of tokens[start:shown_len] that was given out

    def push(self, tokens: tuple[int, ...] | list[int]) -> str:
        """The text that these tokens complete."""
        self._tokens += tokens
        text = self._decode()
        if text.endswith(REPLACEMENT) and len(self._tokens) - self._start <= MAX_HELD:
            return ""
        return self._advance(text)

    def end(self) -> str:
        """What was held back."""
        return self._advance(self._decode())

    def _decode(self) -> str:
        return decode(self._tokenizer, self._tokens[self._start :])

    def _advance(self, text: str) -> str:
        """Gives out what is new, and keeps the last token given out as the context of what follows."""
        new = text[len(self._shown) :]
        if self._tokens:
            self._start = len(self._tokens) - 1
            self._shown = self._decode()
        return new
