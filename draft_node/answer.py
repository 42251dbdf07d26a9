"""One text as its user gets it: pieces of certain text beside their tokens, up to a stop string.

Knows nothing about sessions, nodes or HTTP; tokens go in, pieces come out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draft_node.actions import Deliver, Finish
from draft_node.stops import StopFinder
from draft_node.token_text import TokenTexts
from goodspeed.messages import FinishReason
from goodspeed.text_stream import TextStream


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have stood at a position, with the target's own log-probability of it."""

    id: int
    text: str
    raw: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the answer; its own text and bytes may be a part of a character (`token_text.py`)."""

    id: int
    text: str
    raw: bytes
    logprob: float | None = None
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new: text that is certain (whole characters, never a part of a stop string) and tokens.

    The tokens' text may come only with a later piece.
    """

    text: str
    tokens: tuple[Token, ...]


class Answer:
    """Grows token by token until a stop string is found."""

    def __init__(self, tokenizer: Any, texts: TokenTexts, stops: Sequence[str], min_tokens: int) -> None:
        """min_tokens: a stop string does not count before so many tokens are there."""
        self._stream = TextStream(tokenizer)
        self._texts = texts
        self._stops = StopFinder(stops)
        self._min_tokens = min_tokens
        self.num_tokens = 0
        self.is_complete = False
        self.reason: FinishReason = "length"  # why it is complete, once it is

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.found

    def take(self, item: Deliver | Finish) -> Piece:
        """What a session's next word adds."""
        piece = self._push(item.tokens) if isinstance(item, Deliver) else self._end()
        if self.stop is not None:
            self.is_complete, self.reason = True, "stop"
        elif isinstance(item, Finish):
            self.is_complete, self.reason = True, item.reason
        return piece

    def _push(self, token_ids: Sequence[int]) -> Piece:
        """Takes tokens up to the one that completes a stop string, and drops the others."""
        text, tokens = "", list[Token]()
        for token_id in token_ids:
            if self.stop is not None:
                break
            self.num_tokens += 1
            tokens.append(Token(token_id, *self._texts[token_id]))
            text += self._find(self._stream.push([token_id]))
        return Piece(text, tuple(tokens))

    def _end(self) -> Piece:
        """What was held back, after the last token; it may still complete a stop string."""
        return Piece(self._find(self._stream.end()) + self._stops.end(), ())

    def _find(self, text: str) -> str:
        return self._stops.push(text, counts=self.num_tokens >= self._min_tokens)
