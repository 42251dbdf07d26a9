"""What follows the marker of a call, character by character, in the families' three ways of writing it.

A body is given characters until it has its calls, or refuses one: then what was written is no call, and is content.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from draft_node.parsing.json_scan import JsonScan
from draft_node.parsing.parts import Call

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the tools' parameters, by the tools' names."""

MAX_HEAD = 256
"""Characters of a Mistral call before its arguments: its name, and perhaps an id."""

UNCERTAIN: tuple[Call, ...] = ()
"""The call goes on."""


class Body(Protocol):
    """One call, or a list of them, while it is written."""

    def take(self, char: str) -> tuple[Call, ...] | None:
        """Returns the calls once they are complete, UNCERTAIN before, and None if this character is no part of one."""
        ...


class JsonBody:
    """An object with a name and arguments, or a list of such objects."""

    def __init__(self, *, known: Collection[str] | None = None) -> None:
        """known: the only names that a call may have, and it has to give arguments; None: any name will do."""
        self._known = known
        self._chars = list[str]()
        self._scan = JsonScan()

    def take(self, char: str) -> tuple[Call, ...] | None:
        if not self._chars:
            if char.isspace():
                return UNCERTAIN
            if char not in "{[":
                return None
        self._chars.append(char)
        if not self._scan.take(char):
            return None
        return _calls("".join(self._chars), self._known) if self._scan.is_complete else UNCERTAIN


class MistralBody:
    """A list of objects, or a name, `[ARGS]` and an object with arguments."""

    def __init__(self) -> None:
        self._head = ""
        self._listed: JsonBody | None = None
        self._arguments: JsonScan | None = None
        self._chars = list[str]()

    def take(self, char: str) -> tuple[Call, ...] | None:
        if self._listed is not None:
            return self._listed.take(char)
        if self._arguments is not None:
            return self._argument(self._arguments, char)
        if not self._head and char.isspace():
            return UNCERTAIN
        if not self._head and char in "[{":
            self._listed = JsonBody()
            return self._listed.take(char)
        if char == "{":
            self._arguments = JsonScan()
            return self._argument(self._arguments, char)
        self._head += char
        return UNCERTAIN if len(self._head) <= MAX_HEAD and char not in "\n<" else None

    def _argument(self, scan: JsonScan, char: str) -> tuple[Call, ...] | None:
        self._chars.append(char)
        if not scan.take(char):
            return None
        if not scan.is_complete:
            return UNCERTAIN
        name = self._head.removesuffix("[ARGS]").partition("[CALL_ID]")[0].strip()
        arguments = "".join(self._chars)
        return (Call(name, arguments),) if name and is_object(arguments) else None


class _Written(Struct):
    """A call as models write it: Llama says parameters, all others arguments."""

    name: str
    arguments: Raw = Raw()
    parameters: Raw = Raw()


def _calls(text: str, known: Collection[str] | None) -> tuple[Call, ...] | None:
    """Returns the calls that a JSON object, or a list of them, stands for; None where it stands for none."""
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
    if arguments[:1] == '"':  # an object as a text, as the API itself has it
        arguments = msgspec.json.decode(arguments)
    return Call(written.name, arguments) if is_object(arguments) else None


def is_object(text: str) -> bool:
    """Returns whether a text is a JSON object, which every reader of JSON takes."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
