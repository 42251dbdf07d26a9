"""Turns a session's tokens into pieces of text for the user, up to the first stop string.

Knows nothing about sessions, nodes or HTTP; tokens go in, pieces come out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from draft_node.core.actions import Deliver, Finish
from draft_node.text.spans import Origins, Span
from draft_node.text.token_text import TokenTexts
from draft_node.text.tokens import PromptTokens, Token, token_of
from goodspeed.text.growing import GrowingText, Growth
from goodspeed.wire.fields import FinishReason


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new: text that is certain (whole characters, never a part of a stop string) and tokens.

    The tokens' text may come only with a later piece.
    """

    text: str
    tokens: tuple[Token, ...]
    spans: tuple[Span, ...] = ()  # the text by where it came from
    prompt: PromptTokens | None = None  # in the first piece, where the prompt's log-probabilities are wanted


class Answer:
    """Takes tokens until a stop string is found or the session ends."""

    def __init__(
        self,
        tokenizer: Any,
        texts: TokenTexts,
        stops: Sequence[str],
        min_tokens: int,
        *,
        is_trimmed: bool = False,
        prompt: tuple[int, ...] = (),
    ) -> None:
        """min_tokens: a stop string does not count before so many tokens are there.

        is_trimmed: the text begins with its first character that is no whitespace; tokens stay as they are.
        """
        self._growing = GrowingText(tokenizer, stops, is_trimmed=is_trimmed)
        self._texts = texts
        self._origins = Origins()
        self._prompt = prompt
        self._min_tokens = min_tokens
        self._is_local = False  # the newest token
        self.num_tokens = 0
        self.num_local = 0  # of them
        self.is_complete = False
        self.reason: FinishReason = "length"  # why it is complete, once it is

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._growing.stop

    def take(self, item: Deliver | Finish) -> Piece:
        """The piece that a session's next delivery, or its end, adds."""
        piece = self._push(item) if isinstance(item, Deliver) else self._end()
        if self.stop is not None:
            self.is_complete, self.reason = True, "stop"
        elif isinstance(item, Finish):
            self.is_complete, self.reason = True, item.reason
        return piece

    def _push(self, delivered: Deliver) -> Piece:
        """Takes tokens up to the one that completes a stop string, and drops the others."""
        growths, tokens = list[Growth](), list[Token]()
        self._is_local = delivered.local
        for token_id, told, accepted in zip_longest(delivered.tokens, delivered.logprobs, delivered.accepted):
            self.num_tokens += 1
            self.num_local += delivered.local
            tokens.append(token_of(self._texts, token_id, told, local=delivered.local))
            growths.append(self._growing.push(token_id, counts=self._stops_count))
            self._origins.push(growths[-1].num_decoded, bool(accepted), self._is_local)
            if self.stop is not None:
                break
        piece = self._piece(growths, tokens)
        if delivered.prompt_logprobs is None:
            return piece
        return replace(piece, prompt=PromptTokens(self._prompt, delivered.prompt_logprobs, self._texts))

    def _end(self) -> Piece:
        """What was held back, after the last token; it may still complete a stop string."""
        growth = self._growing.end(counts=self._stops_count)
        self._origins.push(growth.num_decoded, False, self._is_local)
        return self._piece([growth], ())

    @property
    def _stops_count(self) -> bool:
        return self.num_tokens >= self._min_tokens

    def _piece(self, growths: Sequence[Growth], tokens: Sequence[Token]) -> Piece:
        text = "".join(growth.text for growth in growths)
        self._origins.drop(sum(growth.num_left_out for growth in growths))
        return Piece(text, tuple(tokens), self._origins.take(text))
