"""A chat's text as its reader gets it, token by token: taken apart, its content up to the first stop string.

Stop strings are looked for in the content alone: thinking and arguments of calls may hold them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draft_node.parsing.formats import NO_FORMATS, Call, Content, Dropped, Formats, Part
from draft_node.parsing.parser import Parser
from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace, StopFinder, TextStream


@dataclass(frozen=True, slots=True)
class Speech:
    """The way in which a text is taken apart."""

    formats: Formats = NO_FORMATS  # no tools: none may be called
    hidden: Collection[int] | None = None  # special tokens that are no markers, and no text; None: all
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of the tools' parameters, by name
    one_call: bool = False  # the text ends after its first call


NO_SPEECH = Speech()
"""All of the text is content."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Characters and parts that one token adds."""

    num_decoded: int  # characters, some of which may be held back
    parts: list[Part]  # certain, and given out; with what is dropped, in order


class SpokenText:
    """Takes tokens and gives out parts that are certain, until a stop string, or the only call, is complete."""

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], speech: Speech, *, is_thinking: bool, is_trimmed: bool
    ) -> None:
        """is_thinking: the prompt opened what the model thinks. is_trimmed: the content begins with its first
        character that is no whitespace."""
        self._stream = TextStream(tokenizer, speech.hidden)
        self._parser = Parser(speech.formats, speech.schemas, is_thinking=is_thinking)
        self._all_stops = stops
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)
        self._one_call = speech.one_call
        self.has_called = False  # the only call that it may make

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.found

    @property
    def is_thinking(self) -> bool:
        return self._parser.is_thinking

    @property
    def is_over(self) -> bool:
        """True if nothing of what follows is part of the text."""
        return self.stop is not None or self.has_called

    def push(self, token_id: int, *, counts: bool = True) -> Spoken:
        """Adds a token; with counts=False, a stop string that it completes is text like any other."""
        decoded = self._stream.push([token_id])
        return Spoken(len(decoded), self._grow(self._parser.push(decoded), counts=counts))

    def end(self, *, counts: bool = True) -> Spoken:
        """Returns what was held back, when no more tokens come; it may still complete a stop string."""
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
            self._stops = StopFinder(self._all_stops)  # a stop string does not span what lies between
            grown.append(part)
            self.has_called = self._one_call and isinstance(part, Call)
        return grown

    def _content(self, text: str) -> list[Part]:
        kept = self._leading.push(text)
        dropped = text[: len(text) - len(kept)]
        return [*([Dropped(dropped)] if dropped else []), *([Content(kept)] if kept else [])]
