"""Turns a session's tokens into pieces of text for the user, up to the first stop string."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

from draft_node.core.actions import Deliver, Finish
from draft_node.parsing.formats import Call, Content, Part, Thinking, joined
from draft_node.service.spoken import NO_SPEECH, Speech, Spoken, SpokenText
from draft_node.service.tokens import PromptTokens, Token, TokenTexts, token_of
from goodspeed.wire.fields import FinishReason


class Span(NamedTuple):
    """A part of a text."""

    text: str
    accepted: bool  # the draft model wrote it, and the target agreed
    local: bool = False  # the draft model wrote it, and nobody verified it


class _Origin(NamedTuple):
    """The origin of so many characters."""

    num_chars: int
    accepted: bool
    local: bool


class Origins:
    """Remembers the origin of characters that are held back until they are given out."""

    def __init__(self) -> None:
        self._waiting: deque[_Origin] = deque()  # in order

    def push(self, num_chars: int, accepted: bool, local: bool = False) -> None:
        """Adds so many characters; they may be given out later."""
        if num_chars:
            self._waiting.append(_Origin(num_chars, accepted, local))

    def drop(self, num_chars: int) -> None:
        """Drops so many characters, which are not given out."""
        self.take(" " * num_chars)

    def take(self, text: str) -> tuple[Span, ...]:
        """The text that is given out next, in spans as long as can be."""
        spans, start = list[Span](), 0
        while start < len(text):
            num_chars, accepted, local = self._waiting.popleft()
            end = min(start + num_chars, len(text))
            if end - start < num_chars:
                self._waiting.appendleft(_Origin(start + num_chars - end, accepted, local))
            before = spans.pop().text if spans and spans[-1][1:] == (accepted, local) else ""
            spans.append(Span(before + text[start:end], accepted, local))
            start = end
        return tuple(spans)


@dataclass(frozen=True, slots=True)
class Piece:
    """New text and tokens: text that is certain (whole characters, never a part of a stop string).

    The tokens' text may come only with a later piece. `text` is what is said to the user; `parts` are all of it,
    thoughts and calls included, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    spans: tuple[Span, ...] = ()  # the text by where it came from
    thinking: str = ""
    call: Call | None = None
    parts: "tuple[Piece, ...]" = ()  # each with a text, a thought or a call, and with no tokens
    prompt: PromptTokens | None = None  # in the first piece, where the prompt's log-probabilities are wanted

    def each(self) -> "Iterator[Piece]":
        """Yields the piece in pieces that have only one of text, thinking and call; the first has tokens and prompt."""
        if not self.parts:
            yield self
            return
        first, *others = self.parts
        yield replace(first, tokens=self.tokens, prompt=self.prompt)
        yield from others


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
        speech: Speech = NO_SPEECH,
        is_thinking: bool = False,
    ) -> None:
        """min_tokens: a stop string does not count before so many tokens are there.

        is_trimmed: the text begins with its first character that is no whitespace; tokens stay as they are.
        speech: how the text is taken apart. is_thinking: the prompt opened what the model thinks.
        """
        self._spoken = SpokenText(tokenizer, stops, speech, is_thinking=is_thinking, is_trimmed=is_trimmed)
        self._texts = texts
        self._origins = Origins()
        self._prompt = prompt
        self._min_tokens = min_tokens
        self._is_local = False  # the newest token
        self.num_tokens = 0
        self.num_local = 0  # of them
        self.num_thinking = 0  # of them, those that are thought, markers included
        self.is_complete = False
        self.reason: FinishReason = "length"  # why it is complete, once it is

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._spoken.stop

    def take(self, item: Deliver | Finish) -> Piece:
        """Returns the piece that a session's next delivery, or its end, adds."""
        piece = self._push(item) if isinstance(item, Deliver) else self._end()
        if self._spoken.is_over:
            self.is_complete, self.reason = True, "stop"
        elif isinstance(item, Finish):
            self.is_complete, self.reason = True, item.reason
        return piece

    def _push(self, delivered: Deliver) -> Piece:
        """Takes tokens up to the one that completes a stop string, and drops the others."""
        parts, tokens = list[Part](), list[Token]()
        self._is_local = delivered.local
        for token_id, told, accepted in zip_longest(delivered.tokens, delivered.logprobs, delivered.accepted):
            self.num_tokens += 1
            self.num_local += delivered.local
            tokens.append(token_of(self._texts, token_id, told, local=delivered.local))
            was_thinking = self._spoken.is_thinking
            grown = self._spoken.push(token_id, counts=self._stops_count)
            self.num_thinking += was_thinking or self._spoken.is_thinking
            parts += self._marked(grown, accepted=bool(accepted))
            if self._spoken.is_over:
                break
        prompt = None
        if delivered.prompt_logprobs is not None:
            prompt = PromptTokens(self._prompt, delivered.prompt_logprobs, self._texts)
        return self._piece(parts, tokens, prompt)

    def _end(self) -> Piece:
        """Returns what was held back, after the last token; it may still complete a stop string."""
        return self._piece(self._marked(self._spoken.end(counts=self._stops_count), accepted=False))

    @property
    def _stops_count(self) -> bool:
        return self.num_tokens >= self._min_tokens

    def _marked(self, grown: Spoken, *, accepted: bool) -> list[Part]:
        """Remembers the origin of what a token says, some of which may be given out later."""
        self._origins.push(grown.num_decoded, accepted, self._is_local)
        return grown.parts

    def _piece(self, spoken: list[Part], tokens: Sequence[Token] = (), prompt: PromptTokens | None = None) -> Piece:
        """Returns the piece with all of its parts; what is dropped has no origin any more."""
        parts = list[Piece]()
        for part in joined(spoken):
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
