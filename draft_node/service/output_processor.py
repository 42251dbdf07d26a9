"""Turns a session's tokens into a text's items for the user: `Begun`, pieces up to the first stop string, `Ended`.

Stop strings are searched in content only: reasoning and call arguments may contain them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeAlias

from draft_node.core.actions import Deliver, Finish
from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.parsing.formats import Call, Content, ParsedPart, joined
from draft_node.parsing.parser import ONLY_CONTENT, Parser, ParserSettings
from draft_node.service.chat_support import reasoning_state
from draft_node.service.token_text import PromptTokens, Token, TokenTexts, token_of
from goodspeed.engine.tokenizing.text import leaves_blank
from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace, StopFinder, TextStream
from goodspeed.slo.attainment import Kept
from goodspeed.wire.fields import FinishReason


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens, and the parts of the text that are certain: whole characters, never part of a stop string.

    The tokens' text may come in a later piece. Parts beside each other are of different kinds, or calls.
    """

    parts: tuple[ParsedPart, ...]
    tokens: tuple[Token, ...] = ()
    prompt: PromptTokens | None = None  # in the first piece, if prompt log-probabilities are requested

    @property
    def text(self) -> str:
        """The content alone."""
        return "".join(part.text for part in self.parts if isinstance(part, Content))

    def each(self) -> "Iterator[Piece]":
        """Splits into pieces of one part; the first one has tokens and prompt."""
        yield replace(self, parts=self.parts[:1])
        yield from (Piece((part,)) for part in self.parts[1:])


@dataclass(frozen=True, slots=True)
class Begun:
    """The text begins, or begins anew before its first token."""

    target_fingerprint: str | None
    session_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """The text is complete, and its session is closed at both nodes."""

    reason: FinishReason
    stop: str | None  # the stop string that ended it; None: none did
    num_tokens: int  # of the answer, including the token that completed a stop string
    statistics: Statistics
    kept: Kept | None = None  # SLO outcome; None: no objectives
    num_thinking: int = 0  # of these, reasoning tokens


Item: TypeAlias = Begun | Piece | Ended


class OutputProcessor:
    """Turns a session's tokens into pieces until a stop string is found or the session ends."""

    def __init__(
        self, tokenizer: Any, texts: TokenTexts, generation: Generation, parser: ParserSettings = ONLY_CONTENT
    ) -> None:
        """A chat's answer, unless it continues a text, begins without whitespace: in the text, not in the tokens."""
        prompt, stops = generation.prompt, generation.stop
        is_trimmed = leaves_blank(tokenizer, prompt, chat=generation.is_chat)
        is_thinking = reasoning_state(tokenizer, prompt, parser) == "open"
        hidden = texts.special if parser.hidden is None else parser.hidden
        is_new = generation.is_chat and parser.continued is None  # a message of its own
        self._stream = TextStream(tokenizer, hidden, before=() if is_new else prompt)
        self._parser = Parser(parser, is_thinking=is_thinking)
        self._closes = parser.closes
        self._all_stops = stops
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed and parser.continued is None)
        self._one_call = parser.one_call
        self._has_called = False  # the only allowed call is complete
        self._texts = texts
        self._prompt = prompt
        self._min_tokens = generation.min_tokens
        self.num_tokens = 0
        self.num_thinking = 0  # reasoning tokens, including markers
        self.is_complete = False
        self.reason: FinishReason = "length"  # valid once complete

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer; None: none did."""
        return self._stops.found

    def take(self, item: Deliver | Finish) -> Piece:
        """Returns the piece for a session's next delivery, or for its end."""
        piece = self._push(item) if isinstance(item, Deliver) else self._end()
        if self._is_over:
            self.is_complete, self.reason = True, "stop"
        elif isinstance(item, Finish):
            self.is_complete, self.reason = True, item.reason
        return piece

    def _push(self, delivered: Deliver) -> Piece:
        """Adds tokens up to the one that completes a stop string, and drops the rest."""
        parts, tokens = list[ParsedPart](), list[Token]()
        for token_id, told in zip_longest(delivered.tokens, delivered.logprobs):
            self.num_tokens += 1
            tokens.append(token_of(self._texts, token_id, told))
            was_thinking = self._parser.is_thinking
            parts += self._grow(self._parsed(token_id, self._stream.push([token_id])))
            self.num_thinking += was_thinking or self._parser.is_thinking
            if self._is_over:
                break
        prompt = None
        if delivered.prompt_logprobs is not None:
            prompt = PromptTokens(self._prompt, delivered.prompt_logprobs, self._texts)
        return Piece(tuple(joined(parts)), tuple(tokens), prompt)

    def _parsed(self, token_id: int, decoded: str) -> list[ParsedPart]:
        """Parses a token's text. If one token closes the reasoning, other tokens that spell its text do not."""
        if self._parser.is_thinking and self._closes not in (None, token_id):
            return self._parser.think(decoded)
        return self._parser.push(decoded)

    def _end(self) -> Piece:
        """Returns the text held back after the final token; this text may still complete a stop string."""
        parts = self._grow([*self._parser.push(self._stream.end()), *self._parser.end()])
        return Piece(tuple(joined([*parts, *self._content(self._stops.end())])))

    @property
    def _is_over(self) -> bool:
        """True if all further tokens are ignored: a stop string, or the only allowed call, is complete."""
        return self.stop is not None or self._has_called

    def _grow(self, parts: Sequence[ParsedPart]) -> list[ParsedPart]:
        """Returns the certain ones of new parts, up to the first stop string."""
        grown = list[ParsedPart]()
        counts = self.num_tokens >= self._min_tokens  # before that a stop string is ordinary text
        for part in parts:
            if self._is_over:
                break
            if isinstance(part, Content):
                grown += self._content(self._stops.push(part.text, counts=counts))
                continue
            grown += self._content(self._stops.end())
            self._stops = StopFinder(self._all_stops)  # stop strings do not span other parts
            grown.append(part)
            self._has_called = self._one_call and isinstance(part, Call)
        return grown

    def _content(self, text: str) -> list[ParsedPart]:
        kept = self._leading.push(text)
        return [Content(kept)] if kept else []
