"""A call as Qwen3-Coder writes it: `<function=NAME>`, then `<parameter=KEY>` and a value for each argument.

Values are bare text, without escapes. So `</parameter>` ends a value only where another parameter or the end of the
function follows: a value may hold the markers.
"""

import re

from draft_node.parsing.bodies import UNCERTAIN, Schemas
from draft_node.parsing.coercion import arguments_of
from draft_node.parsing.parts import Call

FUNCTION, FUNCTION_ENDS = "<function=", "</function>"
PARAMETER, PARAMETER_ENDS = "<parameter=", "</parameter>"

VALUE = re.compile(rf"\s*{PARAMETER}([^>\n]+)>(.*?){PARAMETER_ENDS}(?=\s*(?:{PARAMETER}|{FUNCTION_ENDS}\Z))", re.DOTALL)


class XmlBody:
    """One function with its parameters."""

    def __init__(self, opener: str, schemas: Schemas) -> None:
        """opener: the marker that began the call; it may be that of the function already."""
        self._schemas = schemas
        self._head = opener if opener == FUNCTION else ""
        self._name: str | None = None
        self._chars = list[str]()  # after the name
        self._in_value = False
        self._has_value = False
        self._word = ""  # in a value its last characters; between values what was written since
        self._is_padded = not self._head

    def take(self, char: str) -> tuple[Call, ...] | None:
        if self._name is None:
            return self._take_head(char)
        self._chars.append(char)
        if self._in_value:
            self._word = (self._word + char)[-len(PARAMETER_ENDS) :]
            if self._word == PARAMETER_ENDS:
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
        """Takes a character that is in no value, or so it seems as yet."""
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
            self._in_value = True  # what seemed to end the value is a part of it
        return UNCERTAIN

    def _call(self) -> tuple[Call, ...] | None:
        text, end = "".join(self._chars), 0
        given = dict[str, str]()
        while found := VALUE.match(text, end):
            given[found[1].strip()] = found[2].removeprefix("\n").removesuffix("\n")
            end = found.end()
        if text[end:].strip() != FUNCTION_ENDS or self._name is None:
            return None
        arguments = arguments_of(given, self._schemas.get(self._name, {}))
        return None if arguments is None else (Call(self._name, arguments),)
