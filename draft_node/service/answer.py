"""Turns a session's tokens into pieces of text for the user, up to the first stop string.

Stop strings are searched in content only: reasoning and call arguments may contain them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

from draft_node.core.actions import Deliver, Finish
from draft_node.parsing.formats import Call, Content, Dropped, Part, Thinking, joined
from draft_node.parsing.parser import ONLY_CONTENT, Parser, ParserSettings
from draft_node.service.tokens import PromptTokens, Token, TokenTexts, token_of
from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace, StopFinder, TextStream
from goodspeed.wire.fields import FinishReason


class Span(NamedTuple):
    """A part of a text from a single origin."""

    text: str
    accepted: bool  # an accepted draft


class _Origin(NamedTuple):
    """The origin of a run of characters."""

    num_chars: int
    accepted: bool


class Origins:
    """Tracks the origin of decoded characters until they are output."""

    def __init__(self) -> None:
        self._waiting: deque[_Origin] = deque()  # in order of the text

    def push(self, num_chars: int, accepted: bool) -> None:
        """Adds the origin of the next `num_chars` characters."""
        if num_chars:
            self._waiting.append(_Origin(num_chars, accepted))

    def drop(self, num_chars: int) -> None:
        """Drops the origins of the next `num_chars` characters, which are not output."""
        self.take(" " * num_chars)

    def take(self, text: str) -> tuple[Span, ...]:
        """Splits the next text of the output into maximal spans of one origin."""
        spans, start = list[Span](), 0
        while start < len(text):
            num_chars, accepted = self._waiting.popleft()
            end = min(start + num_chars, len(text))
            if end - start < num_chars:
                self._waiting.appendleft(_Origin(start + num_chars - end, accepted))
            before = spans.pop().text if spans and spans[-1].accepted == accepted else ""
            spans.append(Span(before + text[start:end], accepted))
            start = end
        return tuple(spans)


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens, and text that is certain (whole characters, never part of a stop string).

    The tokens' text may come in a later piece. `text` is content only; `parts` also has reasoning and calls, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    spans: tuple[Span, ...] = ()  # the text by origin
    thinking: str = ""
    call: Call | None = None
    parts: "tuple[Piece, ...]" = ()  # each with text, reasoning or a call, without tokens
    prompt: PromptTokens | None = None  # in the first piece, if prompt log-probabilities are requested

    def each(self) -> "Iterator[Piece]":
        """Splits into pieces with only one of text, thinking and call; the first one has tokens and prompt."""
        if not self.parts:
            yield self
            return
        first, *others = self.parts
        yield replace(first, tokens=self.tokens, prompt=self.prompt)
        yield from others


class Answer:
    """Turns a session's tokens into pieces until a stop string is found or the session ends."""

    def __init__(
        self,
        tokenizer: Any,
        texts: TokenTexts,
        stops: Sequence[str],
        min_tokens: int,
        *,
        is_trimmed: bool = False,
        prompt: tuple[int, ...] = (),
        parser: ParserSettings = ONLY_CONTENT,
        is_thinking: bool = False,
        after: tuple[int, ...] = (),
    ) -> None:
        """min_tokens: number of tokens before which stop strings are ignored.

        is_trimmed: strips leading whitespace from the text, not from the tokens. parser: how to parse the text.
        is_thinking: the prompt opened reasoning. after: the tokens that end it, as `Constraint.after`; empty: any
        spelling of the closing marker ends it.
        """
        self._stream = TextStream(tokenizer, texts.special if parser.hidden is None else parser.hidden)
        self._parser = Parser(parser.formats, parser.schemas, is_thinking=is_thinking)
        self._after = after
        self._newest: tuple[int, ...] = ()
        self._all_stops = stops
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)
        self._one_call = parser.one_call
        self._has_called = False  # the only allowed call is complete
        self._texts = texts
        self._origins = Origins()
        self._prompt = prompt
        self._min_tokens = min_tokens
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
        parts, tokens = list[Part](), list[Token]()
        for token_id, told, accepted in zip_longest(delivered.tokens, delivered.logprobs, delivered.accepted):
            self.num_tokens += 1
            tokens.append(token_of(self._texts, token_id, told))
            was_thinking = self._parser.is_thinking
            decoded = self._stream.push([token_id])
            self._origins.push(len(decoded), bool(accepted))
            parts += self._grow(self._parsed(token_id, decoded))
            self.num_thinking += was_thinking or self._parser.is_thinking
            if self._is_over:
                break
        prompt = None
        if delivered.prompt_logprobs is not None:
            prompt = PromptTokens(self._prompt, delivered.prompt_logprobs, self._texts)
        return self._piece(parts, tokens, prompt)

    def _parsed(self, token_id: int, decoded: str) -> list[Part]:
        if self._after:
            self._newest = (*self._newest, token_id)[-len(self._after) :]
            if self._newest != self._after:
                return self._parser.think(decoded)
            self._after = ()
        return self._parser.push(decoded)

    def _end(self) -> Piece:
        """Returns the text held back after the final token; this text may still complete a stop string."""
        decoded = self._stream.end()
        self._origins.push(len(decoded), accepted=False)
        parts = self._grow([*self._parser.push(decoded), *self._parser.end()])
        return self._piece([*parts, *self._content(self._stops.end())])

    @property
    def _is_over(self) -> bool:
        """True if all further tokens are ignored: a stop string, or the only allowed call, is complete."""
        return self.stop is not None or self._has_called

    def _grow(self, parts: Sequence[Part]) -> list[Part]:
        """Returns the certain ones of new parts, dropped text included, up to the first stop string."""
        grown = list[Part]()
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

    def _content(self, text: str) -> list[Part]:
        kept = self._leading.push(text)
        dropped = text[: len(text) - len(kept)]
        return [*([Dropped(dropped)] if dropped else []), *([Content(kept)] if kept else [])]

    def _piece(self, given: list[Part], tokens: Sequence[Token] = (), prompt: PromptTokens | None = None) -> Piece:
        """Returns the piece for parsed parts; drops the origins of text that is not output."""
        given = joined(given)
        if all(isinstance(part, Content) for part in given):  # as in every answer without reasoning and calls
            text = "".join(part.raw for part in given)
            return Piece(text, tuple(tokens), self._origins.take(text), prompt=prompt)
        parts = list[Piece]()
        for part in given:
            match part:
                case Content(text):
                    parts.append(Piece(text, (), self._origins.take(text)))
                case Thinking(text):
                    parts.append(Piece("", (), self._origins.take(text), thinking=text))
                case _:
                    self._origins.drop(len(part.raw))
                    if isinstance(part, Call):
                        parts.append(Piece("", (), call=part))
        said = "".join(part.text for part in parts)
        spans = tuple(span for part in parts if part.text for span in part.spans)
        thought = "".join(part.thinking for part in parts)
        return Piece(said, tuple(tokens), spans, thought, parts=tuple(parts), prompt=prompt)
