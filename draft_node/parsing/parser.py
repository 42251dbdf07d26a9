"""Parses a text into parts, character by character, so the split into pieces does not matter.

Only markers and adjacent whitespace are dropped. A call is returned when complete; text that begins like a call but is
none becomes content, marker included. The parser reads each character at most twice, for any text.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from draft_node.parsing.formats import NO_FORMATS, Call, Content, Formats, ParsedPart, Thinking, ToolFormat
from draft_node.parsing.tool_parsers import JsonToolParser, MistralToolParser, ToolParser, XmlToolParser

Continued: TypeAlias = Literal["thinking", "text"]
"""What a text goes on from, where it continues another one."""


@dataclass(frozen=True, slots=True)
class ParserSettings:
    """Settings of the parser for one text."""

    formats: Formats = NO_FORMATS  # tools=None: no calls allowed
    hidden: Collection[int] | None = None  # special tokens omitted from the text (no markers); None: all
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # parameters' JSON schemas by tool
    one_call: bool = False  # the text ends after its first call
    closes: int | None = None  # the token that ends thinking; None: any spelling of the closing marker does
    continued: Continued | None = None  # None: the text begins a turn


ONLY_CONTENT = ParserSettings()
"""Treats the whole text as content."""


class Parser:
    """Parser of one text: `push` its pieces, then `end`."""

    def __init__(self, settings: ParserSettings, *, is_thinking: bool) -> None:
        """is_thinking: the prompt ends in the marker that opens reasoning, or within reasoning."""
        formats, is_continued = settings.formats, settings.continued is not None
        self._thinking = formats.thinking
        self._tools = formats.tools
        self._schemas = settings.schemas
        self.is_thinking = is_thinking and formats.thinking is not None
        self._call: ToolParser | None = None
        self._raw = list[str]()  # text of the call in progress
        self._blank = ""  # whitespace that belongs to the next marker, if one follows
        self._word = ""  # possible beginning of a marker
        self._at_border = not is_continued  # only whitespace since the beginning, a marker or a call
        self._after_marker = self.is_thinking and not is_continued  # whitespace now belongs to the preceding marker
        self._num_calls = 0
        self._parts = list[ParsedPart]()
        self._saying = list[str]()  # text of one kind, not yet in a part
        bare = formats.tools.bare if formats.tools is not None else ""
        self._beginnings = frozenset(marker[0] for marker in (*formats.markers, bare) if marker)

    def push(self, text: str) -> list[ParsedPart]:
        """Adds text; returns the parts that are now certain."""
        if not self._beginnings:  # completions: no formats, all text is content
            return [Content(text)] if text else []
        for char in text:
            self._take(char)
        return self._given()

    def think(self, text: str) -> list[ParsedPart]:
        """Adds reasoning text in which no marker counts; returns the parts that are now certain."""
        text = self._blank + text
        self._add_text(text.rstrip())
        self._blank = text[len(text.rstrip()) :]
        return self._given()

    def end(self) -> list[ParsedPart]:
        """Ends the text; returns the parts that were held back."""
        if self._call is not None:
            self._give_up()
        if not self._is_in_end_of_call():
            self._add_text(self._blank + self._word)
        self._blank = self._word = ""
        return self._given()

    def _is_in_end_of_call(self) -> bool:
        """True if the text was cut within the marker that ends a call, which is complete."""
        ends = self._tools.ends if self._tools is not None and self._num_calls and self._at_border else ()
        return bool(self._word) and any(marker.startswith(self._word) for marker in ends)

    def _given(self) -> list[ParsedPart]:
        self._flush()
        parts, self._parts = self._parts, []
        return parts

    def _flush(self) -> None:
        text = "".join(self._saying)
        self._saying.clear()
        if text:
            self._parts.append(Thinking(text) if self.is_thinking else Content(text))

    def _take(self, char: str) -> None:
        if self._call is not None:
            self._raw.append(char)
            calls = self._call.take(char)
            if calls is None:
                self._raw.pop()
                self._give_up()
                self._read(char)
            elif calls:
                self._called(calls)
        else:
            self._read(char)

    def _read(self, char: str) -> None:
        """Takes a character outside calls: text, whitespace, or part of a marker."""
        if not self._word and char not in self._beginnings and not char.isspace():  # most characters
            self._add_text(self._blank + char)
            self._blank = ""
            return
        if char.isspace():
            if self._word:
                self._add_text(self._blank + self._word)
                self._blank = self._word = ""
            if self._after_marker or self._at_border or self._markers(text=True):
                self._blank += char
            else:  # no marker can follow, so the whitespace is text
                self._add_text(char)
            return
        self._word += char
        markers = self._markers()
        if self._word in markers:
            self._mark(self._word)
            return
        for start in range(len(self._word) + 1):
            rest = self._word[start:]
            if not rest or any(
                marker.startswith(rest) for marker in (markers if not start else self._markers(text=True))
            ):
                break
        if start:
            self._add_text(self._blank + self._word[:start])
            self._blank, self._word = "", rest

    def _markers(self, *, text: bool = False) -> tuple[str, ...]:
        """Returns the markers that may come now. text: as if text had come since the previous marker."""
        if self.is_thinking and self._thinking is not None:
            return (self._thinking.closes,)
        border = self._at_border and not text
        found = self._tools.opens if self._tools is not None and (border or self._tools.follows_text) else ()
        if border and self._thinking is not None:
            found = (*found, self._thinking.opens)
        if border and self._tools is not None:
            found = (
                *found,
                *([self._tools.bare] if self._tools.bare else []),
                *(self._tools.ends if self._num_calls else ()),
            )
        return found

    def _mark(self, marker: str) -> None:
        """Handles a complete marker."""
        raw, self._blank, self._word = self._blank + marker, "", ""
        if self._tools is not None and not self.is_thinking and marker in (*self._tools.opens, self._tools.bare):
            self._raw = [raw]
            self._call = self._tool_parser(self._tools, marker)
            if marker == self._tools.bare:
                self._call.take(marker)
            return
        self._flush()  # before `is_thinking` changes
        self._at_border = self._after_marker = True
        if self._thinking is not None:
            self.is_thinking = marker == self._thinking.opens

    def _tool_parser(self, tools: ToolFormat, marker: str) -> ToolParser:
        match tools.syntax:
            case "xml":
                return XmlToolParser(marker, self._schemas, is_exact=tools.is_exact)
            case "mistral":
                return MistralToolParser()
            case "json":
                return JsonToolParser(known=frozenset(self._schemas) if marker == tools.bare else None)

    def _called(self, calls: tuple[Call, ...]) -> None:
        self._flush()
        self._parts += calls
        self._num_calls += len(calls)
        self._call, self._raw = None, []
        self._at_border = self._after_marker = True

    def _give_up(self) -> None:
        """Turns the collected text into content, since it is no call."""
        raw, self._call, self._raw = "".join(self._raw), None, []
        self._add_text(raw)

    def _add_text(self, text: str) -> None:
        """Adds text; leading whitespace after a marker belongs to the marker."""
        if self._after_marker:
            text = text.lstrip()
        if text:
            self._after_marker = self._at_border = False
            self._saying.append(text)
