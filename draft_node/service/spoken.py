"""Decodes and parses a text token by token, and ends its content at the first stop string.

Stop strings are searched in content only: reasoning and call arguments may contain them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draft_node.parsing.formats import NO_FORMATS, Call, Content, Dropped, Formats, Part
from draft_node.parsing.parser import Parser
from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace, StopFinder, TextStream


@dataclass(frozen=True, slots=True)
class Speech:
    """Settings for parsing a text."""

    formats: Formats = NO_FORMATS  # tools=None: no calls allowed
    hidden: Collection[int] | None = None  # special tokens omitted from the text (no markers); None: all
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # parameters' JSON schemas by tool
    one_call: bool = False  # the text ends after its first call


NO_SPEECH = Speech()
"""Treats the whole text as content."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Characters and parts that a token adds."""

    num_decoded: int  # decoded characters, some may be held back
    parts: list[Part]  # parts that are certain, including dropped text, in order


class SpokenText:
    """Turns tokens into certain parts, until a stop string, or the only allowed call, is complete."""

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], speech: Speech, *, is_thinking: bool, is_trimmed: bool
    ) -> None:
        """is_thinking: the prompt opened reasoning. is_trimmed: strips leading whitespace from the content."""
        self._stream = TextStream(tokenizer, speech.hidden)
        self._parser = Parser(speech.formats, speech.schemas, is_thinking=is_thinking)
        self._all_stops = stops
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)
        self._one_call = speech.one_call
        self.has_called = False  # made the only allowed call

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text; None: none did."""
        return self._stops.found

    @property
    def is_thinking(self) -> bool:
        return self._parser.is_thinking

    @property
    def is_over(self) -> bool:
        """True if the text ignores all further tokens."""
        return self.stop is not None or self.has_called

    def push(self, token_id: int, *, counts: bool = True) -> Spoken:
        """Adds a token. counts: False: a stop string that the token completes is ordinary text."""
        decoded = self._stream.push([token_id])
        return Spoken(len(decoded), self._grow(self._parser.push(decoded), counts=counts))

    def end(self, *, counts: bool = True) -> Spoken:
        """Returns the text held back after the final token; this text may still complete a stop string."""
        decoded = self._stream.end()
        parts = self._grow([*self._parser.push(decoded), *self._parser.end()], counts=counts)
        return Spoken(len(decoded), [*parts, *self._content(self._stops.end())])

    def _grow(self, parts: Sequence[Part], *, counts: bool) -> list[Part]:
        grown = list[Part]()
        for part in parts:
            if self.is_over:
                break
            if isinstance(part, Content):
                grown += self._content(self._stops.push(part.text, counts=counts))
                continue
            grown += self._content(self._stops.end())
            self._stops = StopFinder(self._all_stops)  # stop strings do not span other parts
            grown.append(part)
            self.has_called = self._one_call and isinstance(part, Call)
        return grown

    def _content(self, text: str) -> list[Part]:
        kept = self._leading.push(text)
        dropped = text[: len(text) - len(kept)]
        return [*([Dropped(dropped)] if dropped else []), *([Content(kept)] if kept else [])]
