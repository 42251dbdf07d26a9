"""Parse a tool call (the text after its marker), character by character, in three syntaxes.

A parser takes characters until its calls are complete, or until it rejects one of them: then the text is content.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from draft_node.parsing.formats import Call
from draft_node.parsing.tool_schemas import arguments_of

OUTSIDE = frozenset(' \t\r\n{}[]:,"-+.0123456789eEtruefalsn')
"""All characters that JSON may have outside of strings."""

MAX_DEPTH = 32
"""Most levels of a call's arguments, in an answer and in a request that sends it back."""


class JsonScan:
    """Finds the end of a JSON value by counting brackets outside of strings; a decoder validates the value later."""

    def __init__(self) -> None:
        self.chars = list[str]()
        self.depth = 0
        self._in_string = False
        self._escaped = False
        self.is_complete = False  # the first bracket is closed

    def take(self, char: str) -> bool:
        """Adds a character of an object or a list; False if the value can no longer be JSON."""
        self.chars.append(char)
        if self._in_string:
            self._in_string = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
            return True
        if char not in OUTSIDE:
            return False
        if char == '"':
            self._in_string = True
        self.depth += (char in "{[") - (char in "}]")
        self.is_complete = self.depth == 0
        return self.depth > 0 or char in "}]"


Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of tools' parameters, by tool name."""

MAX_HEAD = 256
"""Most characters of a Mistral call before its arguments: its name, and perhaps an id."""

UNCERTAIN: tuple[Call, ...] = ()
"""Result of `ToolParser.take` while the call is incomplete."""


class ToolParser(Protocol):
    """Parser of one call, or of one list of calls."""

    def take(self, char: str) -> tuple[Call, ...] | None:
        """Returns the calls once complete, UNCERTAIN before, None if the text with this character is no call."""
        ...


class JsonToolParser:
    """An object with a name and arguments, or a list of such objects."""

    def __init__(self, *, known: Collection[str] | None = None) -> None:
        """known: names that a call may have, in which case arguments are required; None: any name."""
        self._known = known
        self._scan = JsonScan()

    def take(self, char: str) -> tuple[Call, ...] | None:
        if not self._scan.chars:
            if char.isspace():
                return UNCERTAIN
            if char not in "{[":
                return None
        if not self._scan.take(char):
            return None
        return _calls("".join(self._scan.chars), self._known) if self._scan.is_complete else UNCERTAIN


class MistralToolParser:
    """A list of call objects, or a name, `[ARGS]` and an object with arguments."""

    def __init__(self) -> None:
        self._head = ""
        self._listed: JsonToolParser | None = None
        self._arguments: JsonScan | None = None

    def take(self, char: str) -> tuple[Call, ...] | None:
        if self._listed is not None:
            return self._listed.take(char)
        if self._arguments is not None:
            return self._argument(self._arguments, char)
        if not self._head and char.isspace():
            return UNCERTAIN
        if not self._head and char in "[{":
            self._listed = JsonToolParser()
            return self._listed.take(char)
        if char == "{":
            self._arguments = JsonScan()
            return self._argument(self._arguments, char)
        self._head += char
        is_head = len(self._head) <= MAX_HEAD and (char not in "\n<" or self._head.rstrip().endswith("[ARGS]"))
        return UNCERTAIN if is_head else None

    def _argument(self, scan: JsonScan, char: str) -> tuple[Call, ...] | None:
        if not scan.take(char):
            return None
        if not scan.is_complete:
            return UNCERTAIN
        name = re.split(r"\[(?:CALL_ID|ARGS)\]", self._head)[0].strip()
        arguments = "".join(scan.chars)
        return (Call(name, arguments),) if name and is_object(arguments) else None


class _Written(Struct):
    """A call in a model's JSON: Llama names the arguments `parameters`, all others `arguments`."""

    name: str
    arguments: Raw = Raw()
    parameters: Raw = Raw()


def _calls(text: str, known: Collection[str] | None) -> tuple[Call, ...] | None:
    """Decodes calls from a JSON object or a list of objects; None if any of them is no call."""
    try:
        written: Any = msgspec.json.decode(text, type=list[_Written] if text[0] == "[" else _Written)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    several: list[_Written] = written if isinstance(written, list) else [written]
    calls = tuple(_call(one, known) for one in several)
    return tuple(call for call in calls if call is not None) if calls and None not in calls else None


def _call(written: _Written, known: Collection[str] | None) -> Call | None:
    given = bytes(written.arguments) or bytes(written.parameters)
    if not written.name or (known is not None and (written.name not in known or not given)):
        return None
    arguments = given.decode() or "{}"
    if arguments[:1] == '"':  # an object as a string, as in the OpenAI API
        arguments = msgspec.json.decode(arguments)
    return Call(written.name, arguments) if is_object(arguments) else None


def is_object(text: str) -> bool:
    """True if a text is a strictly valid JSON object of at most `MAX_DEPTH` levels, which JSON parsers accept."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return isinstance(value, dict) and depth(value) <= MAX_DEPTH


def depth(value: Any) -> int:
    """Returns the nesting depth of lists and objects; 0 for other values."""
    level, found = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        found += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return found


FUNCTION, FUNCTION_ENDS = "<function=", "</function>"
PARAMETER, PARAMETER_ENDS = "<parameter=", "</parameter>"

CLOSED = f"\n{PARAMETER_ENDS}\n"
"""End of a value under a grammar, whose values have it nowhere else: JSON has no line breaks, text ends at it."""

BEGUN = rf"\s*{PARAMETER}([^>\n]+)>(.*?)"
VALUE = re.compile(rf"{BEGUN}\n?{PARAMETER_ENDS}(?=\s*(?:{PARAMETER}|{FUNCTION_ENDS}\Z))", re.DOTALL)
EXACT_VALUE = re.compile(BEGUN + CLOSED, re.DOTALL)


class XmlToolParser:
    """One call as `<function=NAME>` with `<parameter=NAME>` elements (Qwen3-Coder)."""

    def __init__(self, opener: str, schemas: Schemas, *, is_exact: bool) -> None:
        """opener: the marker that began the call, possibly `<function=` itself. is_exact: values end at `CLOSED`."""
        self._schemas = schemas
        self._ends, self._value = (CLOSED, EXACT_VALUE) if is_exact else (PARAMETER_ENDS, VALUE)
        self._head = opener if opener == FUNCTION else ""
        self._name: str | None = None
        self._chars = list[str]()  # after the name
        self._in_value = False
        self._has_value = False
        self._word = ""  # in a value: its latest characters; between values: the text since the previous value

    def take(self, char: str) -> tuple[Call, ...] | None:
        if self._name is None:
            return self._take_head(char)
        self._chars.append(char)
        if self._in_value:
            self._word = (self._word + char)[-len(self._ends) :]
            if self._word == self._ends:
                self._in_value, self._word = False, ""
            return UNCERTAIN
        return self._take_between(char)

    def _take_head(self, char: str) -> tuple[Call, ...] | None:
        if not self._head and char.isspace():
            return UNCERTAIN
        self._head += char
        if len(self._head) <= len(FUNCTION):
            return UNCERTAIN if FUNCTION.startswith(self._head) else None
        if char == ">":
            self._name = self._head[len(FUNCTION) : -1].strip()
            return UNCERTAIN if self._name else None
        return None if char in "<\n" else UNCERTAIN

    def _take_between(self, char: str) -> tuple[Call, ...] | None:
        """Takes a character between values; an end marker before it may still prove to be part of a value."""
        if not self._word and char.isspace():
            return UNCERTAIN
        self._word += char
        if self._word == FUNCTION_ENDS:
            return self._call()
        if self._word == PARAMETER:
            self._in_value = self._has_value = True
            self._word = ""
        elif not (FUNCTION_ENDS.startswith(self._word) or PARAMETER.startswith(self._word)):
            if not self._has_value:
                return None
            self._in_value = True  # the end marker was part of the value
        return UNCERTAIN

    def _call(self) -> tuple[Call, ...] | None:
        text, end = "".join(self._chars), 0
        given = dict[str, str]()
        while found := self._value.match(text, end):
            given[found[1].strip()] = found[2].removeprefix("\n")
            end = found.end()
        if text[end:].strip() != FUNCTION_ENDS or self._name is None:
            return None
        arguments = arguments_of(given, self._schemas.get(self._name, {}))
        return (Call(self._name, arguments),) if arguments is not None and is_object(arguments) else None
